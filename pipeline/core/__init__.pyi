from .display import Bar as Bar
from .display import cut as cut
from .display import figure as figure
from .display import silent as silent
from .installation import install_command as install_command
from .json_record import Hardware as Hardware
from .machine import gpus as gpus
from .machine import resident_mb as resident_mb
from .order import (
    descending_id_rank as descending_id_rank,
)
from .order import (
    sort_hits as sort_hits,
)
from .order import (
    sort_hits_by_id as sort_hits_by_id,
)
from .records import (
    Collection as Collection,
)
from .records import (
    Embeddings as Embeddings,
)
from .records import (
    Qrels as Qrels,
)
from .records import (
    Ragged as Ragged,
)
from .records import (
    Ranking as Ranking,
)
from .records import (
    Texts as Texts,
)
from .records import (
    VectorForm as VectorForm,
)
from .table import (
    Cell as Cell,
)
from .table import (
    Column as Column,
)
from .table import (
    Table as Table,
)
from .table import (
    html_table as html_table,
)
from .table import (
    text_table as text_table,
)
from .table import (
    transposed as transposed,
)
