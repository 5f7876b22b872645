"""The HTML report: one self-contained file with tables, plots and every query."""
