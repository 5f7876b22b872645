"""Readers and writers of file formats, one for each format, whoever reads it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
