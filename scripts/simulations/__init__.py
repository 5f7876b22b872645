"""Simulations with known truth, for `scripts/simulate_statistics.py`: a module for each kind of promise."""
