from .betting import Bets as Bets, growth as growth, log_capital as log_capital
from .gate import (
    EXIT_CODES as EXIT_CODES,
    Gates as Gates,
    gate_result as gate_result,
    gate_results as gate_results,
)
from .margin_tests import (
    noninferiority as noninferiority,
    with_one_more as with_one_more,
)
from .training import RetrievalCallback as RetrievalCallback
