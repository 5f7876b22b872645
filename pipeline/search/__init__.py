"""Search: Faiss (`faiss_index`), exact search of vectors (`exact`), and of words (`inverted_index`)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
