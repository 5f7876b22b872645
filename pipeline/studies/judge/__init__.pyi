from .bets_in_order import BetsInOrder as BetsInOrder
from .grading import prompt_of as prompt_of, read_grade as read_grade
from .judge import agreement as agreement
from .prediction_powered import (
    PredictionPoweredEstimate as PredictionPoweredEstimate,
    estimate_with_judge as estimate_with_judge,
    inclusion_probabilities as inclusion_probabilities,
)
from .sample import open_rankings as open_rankings, read_labels as read_labels
