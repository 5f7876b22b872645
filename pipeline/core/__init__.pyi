from .display import Bar as Bar, cut as cut, figure as figure, interval as interval, silent as silent
from .installation import install_command as install_command
from .machine import (
    Meter as Meter,
    cuda_driver as cuda_driver,
    gpus as gpus,
    hardware as hardware,
    resident_mb as resident_mb,
)
from .order import descending_id_rank as descending_id_rank, sort_hits as sort_hits
from .records import (
    Collection as Collection,
    Embeddings as Embeddings,
    Qrels as Qrels,
    RaggedRows as RaggedRows,
    Ranking as Ranking,
    TextPair as TextPair,
    Texts as Texts,
    VectorForm as VectorForm,
    take_texts as take_texts,
)
from .result_records import Hardware as Hardware
from .subprocesses import ending_at as ending_at, run_in_subprocess as run_in_subprocess
from .table import (
    Cell as Cell,
    Column as Column,
    Table as Table,
    html_table as html_table,
    text_table as text_table,
)
