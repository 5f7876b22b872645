from .benchmark import Benchmark as Benchmark, Session as Session
