from .decide import open_rankings as open_rankings, read_labels as read_labels
from .inputs import draw_order as draw_order
from .side_by_side import Comparison as Comparison
