from .columns import repeated_pairs as repeated_pairs
from .judgments import (
    GRADE_RULE as GRADE_RULE,
    Judgments as Judgments,
    make_judgments as make_judgments,
    read_qrels as read_qrels,
)
from .npy import map_vectors as map_vectors
from .runs import Run as Run, read_run as read_run, write_run as write_run
from .tables import read_judgments as read_judgments, read_texts as read_texts
from .texts import (
    Batch as Batch,
    read_blocks as read_blocks,
    refuse_unfit_ids as refuse_unfit_ids,
)
