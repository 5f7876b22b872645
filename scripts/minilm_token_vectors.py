"""A multi-vector model without training: token vectors of all-MiniLM-L6-v2, saved by MultiVectorEncoder.

configs/dl19-kinds.yaml uses it:

    python scripts/minilm_token_vectors.py models/minilm-token-vectors
"""

from __future__ import annotations

import sys
from pathlib import Path

from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize, Transformer

from pipeline.models.files import find_model


def save(folder: Path) -> None:
    """Write the model."""
    source = find_model("all-minilm-l6-v2", None, False).folder()
    network = Transformer(str(source), query_length=64, document_length=256, query_expansion=None)
    scaled = Normalize(module_input_name="token_embeddings")
    MultiVectorEncoder(modules=[network, scaled], device="cpu").save(str(folder))


if __name__ == "__main__":
    save(Path(sys.argv[1]))
