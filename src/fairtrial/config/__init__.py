"""Reading task, arm and subject files: positions, validation, one clear error."""
