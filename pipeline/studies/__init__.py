"""Studies: questions asked of finished results. A folder each; none imports another."""
