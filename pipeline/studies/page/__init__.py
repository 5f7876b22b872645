"""A page of results: one self-contained HTML file with tables, plots and every query."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
