from .betting import Bets as Bets, growth as growth, log_capital as log_capital
from .gate import EXIT_CODES as EXIT_CODES, gate_result as gate_result
from .margin_tests import Sensitivity as Sensitivity, noninferiority as noninferiority
from .training import RetrievalCallback as RetrievalCallback
