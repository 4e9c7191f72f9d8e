"""The tool lane: one scenario by one subject once, from top to bottom."""
