"""What every other package uses: records, errors, progress, the tie order, this machine."""
