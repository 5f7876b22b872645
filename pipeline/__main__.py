"""`python -m pipeline` is the command `benchmarco`."""

from pipeline.cli import main

if __name__ == "__main__":
    main()
