from .card import FAMILIES as FAMILIES, family_of as family_of, prompt_parts as prompt_parts
from .files import Files as Files
from .finding import BUNDLED as BUNDLED, BundledModel as BundledModel, find_model as find_model
from .model import (
    CalibrationCorpus as CalibrationCorpus,
    ResolvedModel as ResolvedModel,
    model_record as model_record,
)
from .outputs import find_outputs as find_outputs
from .tokenizer import (
    ModelTokenizer as ModelTokenizer,
    TokenizerSettings as TokenizerSettings,
    token_counter as token_counter,
    token_spans as token_spans,
)
