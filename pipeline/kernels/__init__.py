"""Code compiled for the processor it runs on: integer products, and what all kernels are made of."""
