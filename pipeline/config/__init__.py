"""The settings of a benchmark: a module per section, `benchmark` with all of them, `files` to read YAML."""

from pipeline.config.benchmark import Config, FuseConfig, PartConfig, json_schema, of_each_collection
from pipeline.config.data import SOURCES, DataSettings, PooledSlice
from pipeline.config.model import BACKENDS, EncoderSettings, ModelSettings, RowSettings
from pipeline.config.rerank import RERANKERS, RerankSettings, ScorerSettings
from pipeline.config.settings import STAGES, keyed_settings, setting
from pipeline.config.stages import FLAT, MEASURES, EngineConfig, EvaluateConfig, IndexConfig, SearchConfig
from pipeline.config.suites import DATA

__all__ = [
    "BACKENDS", "DATA", "FLAT", "MEASURES", "RERANKERS", "SOURCES", "STAGES", "Config",
    "DataSettings", "EncoderSettings", "EngineConfig", "EvaluateConfig",
    "FuseConfig", "IndexConfig", "ModelSettings",
    "PartConfig", "PooledSlice", "RerankSettings", "RowSettings", "ScorerSettings", "SearchConfig",
    "json_schema", "keyed_settings",
    "of_each_collection", "setting",
]  # fmt: skip
