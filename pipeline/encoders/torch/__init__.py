"""Backends that run PyTorch."""
