"""One agent trial from top to bottom: tasks, arms, phases, judgement, rows."""
