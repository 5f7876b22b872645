from .bm25 import Bm25 as Bm25
from .pair_scores import ScoreStore as ScoreStore
from .reranked import Reranked as Reranked
from .reranked import rerank as rerank
from .retriever import (
    Identities as Identities,
)
from .retriever import (
    Retriever as Retriever,
)
from .retriever import (
    open_ranking as open_ranking,
)
from .retriever import (
    save_ranking as save_ranking,
)
from .rows import find_rows as find_rows
from .rows import table_of as table_of
from .stage import (
    Context as Context,
)
from .stage import (
    Inputs as Inputs,
)
from .stage import (
    Keys as Keys,
)
from .stage import (
    OpensEngine as OpensEngine,
)
from .stage import (
    Plan as Plan,
)
from .stage import (
    Stage as Stage,
)
