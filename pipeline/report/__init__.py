"""Renders tables made elsewhere (terminal, Markdown, LaTeX, CSV), lists caches."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
