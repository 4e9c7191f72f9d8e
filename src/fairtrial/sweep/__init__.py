"""A planned set of trials: plan, execute, resume."""
