from .benchmark import Benchmark as Benchmark, Session as Session
from .exact_twin import compare_with_exact as compare_with_exact, overlap as overlap
