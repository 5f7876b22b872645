from .bm25_index import Tokenization as Tokenization
from .faiss_index import (
    build_index as build_index,
    check_index as check_index,
    least_training_rows as least_training_rows,
    read_index as read_index,
    search_index as search_index,
    set_search_parameters as set_search_parameters,
)
from .fusion import (
    NORMALIZATIONS as NORMALIZATIONS,
    Fusion as Fusion,
    fuse as fuse,
)
from .index_bytes import IndexSize as IndexSize, index_size as index_size
from .quantized import (
    QuantizedSearcher as QuantizedSearcher,
    QuantizedVectors as QuantizedVectors,
    binary_search as binary_search,
)
from .scoring import Metric as Metric
