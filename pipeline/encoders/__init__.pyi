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
    encode_parts as encode_parts,
    text_windows as text_windows,
    tokenize as tokenize,
)
from .conversion import Conversion as Conversion
from .opener import Encoder as Encoder, ModelSource as ModelSource, Opener as Opener
from .openers import resolve as resolve
