"""From a model and labelled images to a policy that is proven on others."""
