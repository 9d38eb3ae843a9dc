"""When an image has had enough views: the rule, learning it, running it, and its report."""
