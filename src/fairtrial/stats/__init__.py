"""Numbers in, estimates out. Pure."""
