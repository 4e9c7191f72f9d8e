"""Developer tools under test, one file each."""
