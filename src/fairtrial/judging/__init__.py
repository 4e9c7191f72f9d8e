"""Judging: captured oracles, trees that we build, and proof that a judge finished."""
