"""A model's rows by transformers and the modules that its files declare, written out plainly.

It is what backends are compared with, and encodes nothing else. It shares no step with them after the token
ids: one text at a time, without padding, in fp32 on the CPU, and each module computed from its own files; for
backends of PyTorch attention as a product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.records import Float32, Int32, Int64
from pipeline.encoders.agreement import NoReferenceError, Probes
from pipeline.encoders.batching import refuse_unknown_tokens
from pipeline.encoders.torch.backend import tokens_embedded
from pipeline.encoders.torch.loading import loading, read_head, unused_tokens
from pipeline.models.card import ModelCard, Module
from pipeline.models.model import ResolvedModel

if TYPE_CHECKING:
    import torch

ENCODERS_ALONE = ("t5", "mt5", "umt5", "longt5")
"""Model types with a decoder, which gives no vectors."""
IGNORED = ("Dropout",)
"""Modules that do nothing to a vector."""


LOGARITHMS = {"relu": 1, "log1p_relu": 2}
"""How many logarithms a weight goes through, by the activation of sentence-transformers' SpladePooling."""


class PlainModel:
    """The reference of a model.

    Attributes:
        network: What transformers loads; None for a static model.
        unused: Of word weights of BGE-M3, the tokens that have none.

    Raises:
        NoReferenceError: The model has something that is not written out here.
        InputError: Its files are damaged.
    """

    network: Any = None
    unused: Int64

    def __init__(self, model: ResolvedModel, **loading_settings: str) -> None:
        self.model, self.folder, self.loading_settings = model, model.files.folder(), loading_settings
        chains: dict[str, Callable[[], Callable[[Int32], torch.Tensor]]] = {
            "dense": self._dense, "sparse": self._sparse, "multivector": self._multivector
        }  # fmt: skip
        self._row = chains[model.output]()

    def row(self, ids: Int32) -> Float32:
        """The row of a text, as `agreement.row_as_vector` gives those of backends."""
        import torch

        with torch.inference_mode():
            flat: Float32 = self._row(ids).float().reshape(-1).numpy()
        return flat

    def probes(self, tokens: Sequence[Int32]) -> Probes:
        """The rows of some texts, the longest first, each alone.

        Raises:
            InputError: The tokenizer gives ids that the network has no embedding of.
        """
        embedded = self.network and tokens_embedded(self.network)
        if embedded:
            refuse_unknown_tokens(self.model.name, max(int(ids.max()) for ids in tokens), embedded)
        return Probes.of(tokens, self.model.pad_id, [self.row(ids) for ids in tokens])

    def _dense(self) -> Callable[[Int32], torch.Tensor]:
        modules, names = self.model.card.modules, self.model.card.module_names
        if names[:1] == ["StaticEmbedding"]:
            words = _static_words(self.folder / modules[0].folder)

            def first(ids: Int32) -> torch.Tensor:
                return words[_batch(ids)[0]].mean(0)

            rest = modules[1:]
        else:
            place = names.index("Pooling") if "Pooling" in names else 0
            if place > 1:
                raise NoReferenceError(f"a module {names[1]} before Pooling")
            hidden, pooling = self._network(), self.model.pooling

            def first(ids: Int32) -> torch.Tensor:
                return _pooled(pooling, hidden(ids))

            rest = modules[place + 1 :]
        steps = [_step(self.folder / module.folder, module) for module in rest]

        def row(ids: Int32) -> torch.Tensor:
            vector = first(ids)
            for step in steps:
                vector = step(vector)
            return vector

        return row

    def _sparse(self) -> Callable[[Int32], torch.Tensor]:
        if self.model.card.has_m3_heads:
            return self._m3_words()
        logarithms = splade_logarithms(self.model.card)
        masked = self._load("AutoModelForMaskedLM")

        def row(ids: Int32) -> torch.Tensor:
            weights: torch.Tensor = masked(input_ids=_batch(ids)).logits[0].amax(0).relu()
            for _ in range(logarithms):
                weights = weights.log1p()
            return weights

        return row

    def _m3_words(self) -> Callable[[Int32], torch.Tensor]:
        import torch
        from transformers import AutoTokenizer

        hidden, head = self._network(), read_head(self.folder, "sparse")
        trust = self.model.trust_remote_code
        self.unused = unused_tokens(AutoTokenizer.from_pretrained(self.folder, trust_remote_code=trust))

        def row(ids: Int32) -> torch.Tensor:
            numbers = torch.nn.functional.linear(hidden(ids), head["weight"].float(), head["bias"].float())
            weights = torch.zeros(int(self.model.card.config["vocab_size"]))
            for token, weight in zip(ids.tolist(), numbers[:, 0].tolist(), strict=True):
                weights[token] = max(weights[token].item(), weight)
            weights[self.unused] = 0
            return weights

        return row

    def _multivector(self) -> Callable[[Int32], torch.Tensor]:
        import torch

        if not self.model.card.has_m3_heads:
            raise NoReferenceError("token vectors of MultiVectorEncoder")
        hidden, head = self._network(), read_head(self.folder, "multivector")

        def row(ids: Int32) -> torch.Tensor:
            vectors = hidden(ids)[1:] @ head["weight"].float().T + head["bias"].float()
            return torch.nn.functional.normalize(vectors, dim=-1) if self.model.normalize else vectors

        return row

    def _network(self) -> Callable[[Int32], torch.Tensor]:
        """The last hidden states [tokens, width] of a text."""
        alone = self.model.card.config.get("model_type") in ENCODERS_ALONE
        network = self._load("AutoModelForTextEncoding" if alone else "AutoModel")
        return lambda ids: network(input_ids=_batch(ids), return_dict=True).last_hidden_state[0]

    def _load(self, name: str) -> Any:
        """The network in one of transformers' classes."""
        import torch
        import transformers

        with loading(self.model.name):
            network = getattr(transformers, name).from_pretrained(
                self.folder / self.model.card.network_folder,
                dtype=torch.float32,
                trust_remote_code=self.model.trust_remote_code,
                **self.loading_settings,
            )
        self.network = network.eval()
        return self.network


def splade_logarithms(card: ModelCard) -> int:
    """How many logarithms a weight of a SPLADE goes through.

    Raises:
        NoReferenceError: Its modules do more than a SPLADE.
    """
    if card.routed:
        raise NoReferenceError("it has a Router")
    names = card.module_names
    if not names:  # a masked language model without files of sentence-transformers
        return LOGARITHMS["relu"]
    if names not in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"]):
        raise NoReferenceError(f"its modules are {', '.join(names)}")
    pooling = card.modules[1].config
    if pooling.get("pooling_strategy", "max") != "max":
        raise NoReferenceError(f"its pooling strategy is {pooling['pooling_strategy']}")
    activation = pooling.get("activation_function", "relu")
    if activation not in LOGARITHMS:
        raise NoReferenceError(f"its activation is {activation}")
    if card.settings.get("max_active_dims") is not None or card.similarity == "cosine":
        raise NoReferenceError("it limits the number of words, or scales weights to length 1")
    return LOGARITHMS[activation]


def _batch(ids: Int32) -> torch.Tensor:
    import torch

    return torch.from_numpy(ids.astype(np.int64))[None]


def _pooled(modes: str, hidden: torch.Tensor) -> torch.Tensor:
    """The vector of hidden states [tokens, width] by poolings joined by `+`.

    Formulas: `Pooling` of sentence-transformers.
    """
    import torch

    places = torch.arange(1, len(hidden) + 1, dtype=hidden.dtype)[:, None]
    poolings: dict[str, Callable[[], torch.Tensor]] = {
        "cls": lambda: hidden[0],
        "last_token": lambda: hidden[-1],
        "mean": lambda: hidden.mean(0),
        "max": lambda: hidden.amax(0),
        "mean_sqrt_len_tokens": lambda: hidden.sum(0) / len(hidden) ** 0.5,
        "weightedmean": lambda: (hidden * places).sum(0) / places.sum(),
    }
    names = [{"weightedmean_tokens": "weightedmean"}.get(mode, mode) for mode in modes.split("+")]
    if unknown := set(names) - set(poolings):
        raise NoReferenceError(f"the pooling {min(unknown)}")
    return torch.cat([poolings[name]() for name in names])


def _static_words(folder: Path) -> torch.Tensor:
    """The vectors of words [words, dimension] of a StaticEmbedding."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors") if (folder / "model.safetensors").is_file() else {}
    words = tensors.get("embedding.weight", tensors.get("embeddings"))
    if words is None or len(tensors) > 1:
        raise NoReferenceError("words whose vectors are not in one matrix")
    return words.float()


def _step(folder: Path, module: Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """What a module after the pooling does to a vector [dimension]."""
    import torch

    kind, config = module.kind, module.config
    if kind == "Normalize":
        return lambda vector: torch.nn.functional.normalize(vector, dim=-1)
    if kind in IGNORED:
        return lambda vector: vector
    weights = _weights(folder)
    if kind == "LayerNorm":
        scale, shift = weights["norm.weight"], weights["norm.bias"]
        return lambda vector: torch.nn.functional.layer_norm(vector, vector.shape, scale, shift)
    if kind != "Dense" or config.get("module_input_name") not in (None, "sentence_embedding"):
        raise NoReferenceError(f"a module {kind}")
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    activation = getattr(torch.nn, name)()
    return lambda vector: activation(
        torch.nn.functional.linear(vector, weights["linear.weight"], weights.get("linear.bias"))
    )


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of a module, in fp32."""
    import torch
    from safetensors.torch import load_file

    path = folder / "model.safetensors"
    if path.is_file():
        tensors = load_file(path)
    else:
        tensors = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    return {name: tensor.float() for name, tensor in tensors.items()}
