from .agreement import (
    LIMITS as LIMITS,
    Probes as Probes,
    Watch as Watch,
    sample_tokens as sample_tokens,
)
from .base import ModelSource as ModelSource
from .batching import (
    TokenBatch as TokenBatch,
    Usage as Usage,
    Window as Window,
    batches as batches,
    encode_parts as encode_parts,
    text_windows as text_windows,
    tokenize as tokenize,
)
from .opener import Conversion as Conversion, Encoder as Encoder, Opener as Opener
from .openers import resolve as resolve
