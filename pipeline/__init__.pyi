from .api import run_benchmark as run_benchmark, run_benchmarks as run_benchmarks
from .comparison.side_by_side import compare as compare
from .config.files import load_config as load_config, load_configs as load_configs
from .core.errors import InputError as InputError
from .formats.given import write_collection as write_collection
from .metrics.definitions import register_measure as register_measure
from .metrics.evaluation import evaluate as evaluate
from .results.result import read_result as read_result
from .run.model_object import evaluate_model as evaluate_model
from .version import __version__ as __version__
