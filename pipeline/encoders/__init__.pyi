from .agreement import (
    LIMITS as LIMITS,
    Probes as Probes,
    Reference as Reference,
    Watch as Watch,
    sample_tokens as sample_tokens,
)
from .base import ModelSource as ModelSource
from .batching import (
    TokenBatch as TokenBatch,
    Usage as Usage,
    batches as batches,
    encode as encode,
    encode_parts as encode_parts,
    tokenize as tokenize,
    tokenized_windows as tokenized_windows,
)
from .opener import Encoder as Encoder, Opener as Opener, PairOpener as PairOpener, TextOpener as TextOpener
from .openers import OPENERS as OPENERS, resolve as resolve
