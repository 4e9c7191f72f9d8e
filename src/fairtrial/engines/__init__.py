"""Ways to start workers, one file each."""
