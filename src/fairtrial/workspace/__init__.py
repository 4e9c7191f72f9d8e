"""The trees of a trial: where they come from, how they are layered, what of them an agent is credited with."""
