"""Readers and writers, one for each format: TREC runs, judgments, tables, texts, vectors; DataFrames, too."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
