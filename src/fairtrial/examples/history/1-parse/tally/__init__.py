"""Expenses in plain text."""
