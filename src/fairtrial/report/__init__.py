"""Rendering only: terminal, Markdown, JSON. No number is computed here."""
