from .fused_runs import fuse as fuse
