from .agreement import (
    LIMITS as LIMITS,
    Probes as Probes,
    Watch as Watch,
    sample_tokens as sample_tokens,
)
from .batching import (
    TokenBatch as TokenBatch,
    Usage as Usage,
    Window as Window,
    batches as batches,
    text_windows as text_windows,
    tokenize as tokenize,
)
from .conversion import Conversion as Conversion
from .encoder import Encoder as Encoder
from .opener import ModelSource as ModelSource, Opener as Opener
from .openers import resolve as resolve, settle as settle
