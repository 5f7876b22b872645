from .against_exact import compare_with_exact as compare_with_exact, overlap as overlap
from .side_by_side import Comparison as Comparison
