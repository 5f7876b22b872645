from .api import (
    evaluate as evaluate,
)
from .api import (
    evaluate_model as evaluate_model,
)
from .api import (
    fuse as fuse,
)
from .api import (
    reproduce as reproduce,
)
from .api import (
    run_benchmark as run_benchmark,
)
from .api import (
    run_benchmarks as run_benchmarks,
)
from .api import (
    verify as verify,
)
from .comparison.side_by_side import compare as compare
from .config.files import load_config as load_config
from .config.files import load_configs as load_configs
from .core.errors import InputError as InputError
from .formats.given import write_collection as write_collection
from .metrics.names import register_measure as register_measure
from .version import __version__ as __version__
