from .fused_runs import fuse as fuse
from .tuning import Tuning as Tuning, folds_of as folds_of, tune as tune
