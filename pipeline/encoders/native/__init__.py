"""The native backend: this project's own kernels."""
