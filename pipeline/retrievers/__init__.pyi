from .bm25 import Bm25 as Bm25
from .pair_scores import ScoreStore as ScoreStore
from .reranked import RerankingRetriever as RerankingRetriever, rerank as rerank
from .retriever import (
    Retriever as Retriever,
    open_ranking as open_ranking,
    save_ranking as save_ranking,
)
from .rows import find_rows as find_rows, table_of as table_of
from .stage import (
    Context as Context,
    Inputs as Inputs,
    Plan as Plan,
    Stage as Stage,
)
