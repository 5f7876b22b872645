from .gate import EXIT_CODES as EXIT_CODES, ORDER_SEED as ORDER_SEED, gate_result as gate_result
