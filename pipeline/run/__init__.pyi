from .benchmark import Benchmark as Benchmark
from .benchmark import Session as Session
from .reproduction import compare_with_original as compare_with_original
