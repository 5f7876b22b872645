"""Models as backends run them: texts in, vectors out; pairs of texts in, scores out.

A backend is a function that loads a model as a `batching.Backend` (one that runs PyTorch extends
`torch.backend.TorchBackend`), or a reranker as an `opener.Scorer`; and a `conversion.Conversion`, if it makes
something of the model's files first. `openers.TEXTS` and `openers.PAIRS` list them; see docs/models.md.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
