"""The settings of a benchmark: a module per section, `benchmark` with all of them, `files` to read YAML."""

from pipeline.config.benchmark import (
    Config,
    FuseConfig,
    PartConfig,
    add_sections,
    of_each_collection,
)
from pipeline.config.data import SOURCES, ChunkSettings, DataSettings
from pipeline.config.files import as_config, file_schema
from pipeline.config.model import (
    BACKENDS,
    QUANTIZED,
    EncoderSettings,
    ModelSettings,
    RowSettings,
    SnowballStemmer,
    StopWords,
)
from pipeline.config.rerank import RERANKERS, RerankSettings, ScorerSettings
from pipeline.config.settings import STAGES, Section, keyed_settings, mark_of, section_of, setting
from pipeline.config.stages import (
    FLAT,
    MEASURES,
    EngineConfig,
    EvaluateConfig,
    IndexConfig,
    SearchConfig,
)
from pipeline.config.strangers import refuse_unasked
from pipeline.config.suites import DATA, ManySettings, read_suite, suite_names

__all__ = [
    "BACKENDS", "DATA", "FLAT", "MEASURES", "QUANTIZED", "RERANKERS", "SOURCES", "STAGES",
    "ChunkSettings", "Config", "DataSettings", "EncoderSettings", "EngineConfig",
    "EvaluateConfig", "FuseConfig", "IndexConfig", "ManySettings", "ModelSettings",
    "PartConfig", "RerankSettings", "RowSettings", "ScorerSettings", "SearchConfig", "Section",
    "SnowballStemmer", "StopWords", "as_config", "file_schema", "keyed_settings", "mark_of",
    "of_each_collection", "read_suite", "refuse_unasked", "section_of", "setting", "suite_names",
]  # fmt: skip

add_sections()  # after all that a section of another package may import from here
