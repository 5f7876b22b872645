from .side_by_side import Comparison as Comparison
