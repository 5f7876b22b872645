from .bm25_index import Tokenization as Tokenization
from .faiss_index import (
    ApproximateSearcher as ApproximateSearcher,
    build_index as build_index,
    check_index as check_index,
    index_size as index_size,
    read_index as read_index,
    set_search_parameters as set_search_parameters,
)
from .faiss_parts import least_training_rows as least_training_rows
from .fusion import (
    NORMALIZATIONS as NORMALIZATIONS,
    Fusion as Fusion,
    fuse as fuse,
)
from .quantized import (
    QuantizedSearcher as QuantizedSearcher,
    QuantizedVectors as QuantizedVectors,
    binary_search as binary_search,
)
from .scoring import Metric as Metric
