"""Results of finished benchmarks: their folders, their records, and comparisons of several."""
