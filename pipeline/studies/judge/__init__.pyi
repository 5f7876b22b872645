from .bets_in_order import BetsInOrder as BetsInOrder
from .grading import read_grade as read_grade
from .prediction_powered import Sharpened as Sharpened, agreement as agreement, sharpen as sharpen
from .sample import open_rankings as open_rankings, read_labels as read_labels
