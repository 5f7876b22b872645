"""Artifacts on disk: the only code that knows their paths."""
