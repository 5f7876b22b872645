"""The running of a benchmark: its plan, the making of artifacts, the writing of results."""
