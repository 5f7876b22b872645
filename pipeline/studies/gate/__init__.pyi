from .betting import Bets as Bets, growth as growth, log_capital as log_capital
from .gate import EXIT_CODES as EXIT_CODES, gate_result as gate_result
from .margin_tests import (
    detectable as detectable,
    needed as needed,
    noninferiority as noninferiority,
    one_more_undoes as one_more_undoes,
)
from .training import RetrievalCallback as RetrievalCallback
