from .benchmark import Benchmark as Benchmark, Session as Session
from .reproduction import compare_with_original as compare_with_original
