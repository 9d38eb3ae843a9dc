"""Is it better? Baselines, scores, comparison, verdict and cost."""
