from .bm25_index import Tokenization as Tokenization
from .exact import overlap as overlap
from .faiss_index import (
    build_index as build_index,
)
from .faiss_index import (
    check_index as check_index,
)
from .faiss_index import (
    least_training_rows as least_training_rows,
)
from .faiss_index import (
    read_index as read_index,
)
from .faiss_index import (
    search_index as search_index,
)
from .faiss_index import (
    set_search_parameters as set_search_parameters,
)
from .fusion import (
    NORMALIZATIONS as NORMALIZATIONS,
)
from .fusion import (
    Fusion as Fusion,
)
from .fusion import (
    Tuning as Tuning,
)
from .fusion import (
    folds_of as folds_of,
)
from .fusion import (
    fuse as fuse,
)
from .fusion import (
    tune as tune,
)
from .quantized import QuantizedVectors as QuantizedVectors
from .quantized import binary_search as binary_search
from .scoring import Metric as Metric
from .searchers import time_searches as time_searches
from .searchers import total_cost as total_cost
