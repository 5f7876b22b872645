"""Foundations of all other packages: records, errors, progress, the tie order, the machine, the hub."""
