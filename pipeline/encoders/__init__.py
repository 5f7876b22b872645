"""Models as backends run them: texts in, vectors out; pairs of texts in, scores out.

A backend has an opener (`opener.TextOpener` or `opener.PairOpener`), and a class with the interface
`batching.Backend` (one that runs PyTorch extends `torch.backend.TorchBackend`) or `pairs.scorer.PairBackend`.
`openers.OPENERS` lists them; see docs/models.md.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
