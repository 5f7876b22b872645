from .detection import plan_detection as plan_detection
