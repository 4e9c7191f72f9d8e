"""Indexes of a task's tree and the tool servers that answer from them, one file each."""
