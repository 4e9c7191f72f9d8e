"""Frozen values shared by every package. No I/O, no clocks, no paths opened."""
