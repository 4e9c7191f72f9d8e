"""Files that run inside a sandbox on its own Python; nobody imports them, and they import nothing of ours."""
