from .detection import plan_detection as plan_detection
from .side_by_side import Comparison as Comparison
