from .columns import fingerprints as fingerprints
from .columns import repeated_pairs as repeated_pairs
from .judgments import (
    GRADE_RULE as GRADE_RULE,
)
from .judgments import (
    Judgments as Judgments,
)
from .judgments import (
    make_judgments as make_judgments,
)
from .judgments import (
    read_qrels as read_qrels,
)
from .npy import map_vectors as map_vectors
from .runs import Run as Run
from .runs import read_run as read_run
from .runs import write_run as write_run
from .tables import read_judgments as read_judgments
from .texts import (
    Batch as Batch,
)
from .texts import (
    read_blocks as read_blocks,
)
from .texts import (
    read_jsonl as read_jsonl,
)
from .texts import (
    refuse_unfit_ids as refuse_unfit_ids,
)
