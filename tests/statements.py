"""Runs the statements of its argument, as `python -c` does; for `fork_server.py`, which runs modules."""

import sys

if __name__ == "__main__":
    exec(sys.argv[1], {"__name__": "__main__"})
