"""The `flag` backend: the model as FlagEmbedding loads and pools it, on CPU or GPU."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.artifacts import Store
from pipeline.encoders.batching import Batch, load_tokenizer
from pipeline.encoders.models import Model
from pipeline.errors import InputError
from pipeline.records import Float32, Int64

log = logging.getLogger(__name__)

CPU_TOKENS, GPU_TOKENS = 2048, 65536  # tokens per batch, padding included


class FlagBackend:
    """A FlagEmbedding model that takes token ids.

    FlagEmbedding's own classes choose the architecture, load the weights, pool and normalize; batches
    come from `pipeline.encoders.batching` instead of its encode loop.

    Args:
        model: What to load and how.
        store: Not needed: FlagEmbedding reads the model's own files.
    """

    def __init__(self, model: Model, store: Store) -> None:
        import torch

        folder = model.files.folder()
        self.device = torch.device(model.device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InputError(
                f"model.device: {model.device}, but this PyTorch ({torch.__version__}) finds no GPU",
                allowed="cpu, or a PyTorch built for CUDA",
                fix="set model.device to cpu",
            )
        dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        self.flag = _load(model, folder)
        _refuse_missing(model, folder, self.flag.model)
        self.network = self.flag.model.to(device=self.device, dtype=dtypes[model.precision]).eval()
        self.tokenizer = load_tokenizer(folder)
        self.pad_id = model.pad_id
        self.token_budget = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        self.dimension = int(self.network.config.hidden_size)

    def forward(self, batches: Iterator[Batch]) -> Iterator[tuple[Int64, Float32]]:
        """See `pipeline.encoders.batching.Backend`."""
        import torch

        with torch.inference_mode():
            pending: tuple[Int64, torch.Tensor] | None = None
            for batch in batches:
                vectors = self._vectors(batch)
                if pending:  # fetched one batch late, so that a GPU is never waited for
                    yield pending[0], pending[1].cpu().numpy()
                pending = batch.rows, vectors
            if pending:
                yield pending[0], pending[1].cpu().numpy()

    def _vectors(self, batch: Batch) -> Any:
        import torch

        inputs = {
            "input_ids": torch.from_numpy(batch.ids).to(self.device, non_blocking=True),
            "attention_mask": torch.from_numpy(batch.mask).to(self.device, non_blocking=True),
        }
        hidden = self.network(**inputs, return_dict=True).last_hidden_state
        if hasattr(self.flag, "pooling"):
            pooled = self.flag.pooling(hidden, inputs["attention_mask"])
        else:  # FlagEmbedding's decoder-only classes pool the last token by a function
            last = torch.from_numpy(batch.mask.sum(1) - 1).to(self.device)
            pooled = hidden[torch.arange(len(hidden), device=self.device), last]
        if self.flag.normalize_embeddings:
            pooled = torch.nn.functional.normalize(pooled, dim=-1)
        return pooled.float()


def _load(model: Model, folder: Path) -> Any:
    from FlagEmbedding import FlagAutoModel
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    # by what stands in the key, never by the folder's name; bge-m3's dense vector is the encoder's CLS
    name = "decoder-only-base" if model.pooling == "last_token" else "encoder-only-base"
    with _quiet("FlagEmbedding.inference.auto_embedder"), _refusals_said(model):
        return FlagAutoModel.from_finetuned(
            str(folder),
            model_class=name,
            normalize_embeddings=model.normalize,
            use_fp16=model.precision == "fp16",
            use_bf16=model.precision == "bf16",
            devices=[model.device],
            pooling_method=model.pooling,
            trust_remote_code=model.trust_remote_code,
            query_instruction_format="{}{}",
        )


def _refuse_missing(model: Model, folder: Path, network: Any) -> None:
    """Refuse a model whose files lack weights: transformers fills them in at random and says nothing here.

    Only the pooler is not used. A checkpoint may put a prefix before each name, such as `bert.`, and an old
    one has `gamma` and `beta` where the network has `weight` and `bias`.
    """
    from safetensors import safe_open

    stored: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no mapping)
                parts = name.replace(".gamma", ".weight").replace(".beta", ".bias").split(".")
                stored.update(".".join(parts[start:]) for start in range(len(parts)))
    wanted = (name for name, _ in network.named_parameters() if not name.startswith("pooler."))
    missing = [name for name in wanted if name not in stored] if stored else []
    if missing:
        raise InputError(
            f"model '{model.name}': its files lack {len(missing)} weights, such as {missing[0]}",
            fix="restore the model's files",
        )


@contextlib.contextmanager
def _refusals_said(model: Model) -> Iterator[None]:
    """Say what is wrong with a model that cannot be loaded: broken weights, or code of its own to run."""
    from safetensors import SafetensorError

    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise InputError(
            f"model '{model.name}' runs only with Python files of its own",
            fix="read them, then set model.trust_remote_code to true",
        ) from None
    except SafetensorError as error:
        raise InputError(
            f"the weights of model '{model.name}' cannot be read: {error}", fix="restore the model's files"
        ) from None


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
