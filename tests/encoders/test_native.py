"""The native backend: which models it takes, what it says of others; a text's company moves no bit."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from inside import pretend
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel, ElectraConfig, ElectraModel, GteConfig, GteModel
from workplaces import BAR, process

from pipeline import InputError
from pipeline.config import BACKENDS
from pipeline.encoders import Encoder, Usage, resolve
from pipeline.native import Fp32Model, PackedModel, network_arrays, network_matrices
from pipeline.storage import Store

Opened = Callable[..., Encoder]
Saved = Callable[..., Path]
SHAPE = {
    "vocab_size": 30522, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 128, "initializer_range": 0.3,
}  # fmt: skip


NATIVE = {"backend": "native", "precision": "int16"}
MINILM = {**NATIVE, "name": "all-minilm-l6-v2"}


def encoded(native: Encoder, texts: list[str], most: int = 512, size: int | None = None) -> tuple[Any, Usage]:
    model = replace(native.model, max_lengths={"passages": most})
    ((rows, usage),) = Encoder(model, native.backend, size).encode_parts([texts], "passages", BAR)
    return rows, usage


def test_no_text_s_vector_depends_on_its_company(passages: list[str], store: Store, opened: Opened) -> None:
    native, texts = opened(store, **MINILM), [*passages[:40], "", "a", "long " * 700]
    together, usage = encoded(native, texts)
    assert usage.tokens == usage.padded > 0  # padding costs nothing
    assert (encoded(native, texts, size=1)[0] == together).all()
    assert (encoded(native, texts[::-1])[0][::-1] == together).all()
    backend: Any = native.backend
    backend.token_budget, backend.threads = 200, 1
    assert (encoded(native, texts)[0] == together).all()


def test_a_first_token_s_state_is_the_same_whether_the_others_are_wanted_or_not(tmp_path: Path) -> None:
    torch.manual_seed(0)
    np.savez(tmp_path / "w.npz", **network_arrays(BertModel(BertConfig(**SHAPE))))
    network, generator = PackedModel(tmp_path / "w.npz", "cls"), np.random.default_rng(0)
    for tokens in range(1, 130):
        ids = generator.integers(0, SHAPE["vocab_size"], (2000 // tokens, tokens))
        mask = np.ones_like(ids)
        states, texts = network.hidden(ids, mask, only_first=False)
        assert (network.vectors(ids, mask) == states[texts[:-1]]).all()


PLAIN = {"pad_token_id": 0, "max_position_embeddings": 300}
ROTARY = {**PLAIN, "hidden_size": 96, "num_attention_heads": 3, "initializer_range": 0.1}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", PLAIN),
    "roberta": ("Roberta", PLAIN),
    "bert, of narrow layers and heads": (
        "Bert",
        {**PLAIN, "hidden_size": 78, "num_attention_heads": 3, "intermediate_size": 100},
    ),
    "distilbert": ("DistilBert", {**PLAIN, "dim": 64, "n_layers": 2, "n_heads": 2, "hidden_dim": 128}),
    "mpnet": ("MPNet", {**PLAIN, "pad_token_id": 1}),
    "nomic-bert": ("NomicBert", ROTARY),
    "gte": ("Gte", {**ROTARY, "type_vocab_size": 0}),
    "modernbert": (
        "ModernBert",
        {
            **ROTARY, "num_hidden_layers": 4, "local_attention": 32, "norm_bias": True, "bos_token_id": 101,
            "eos_token_id": 102, "cls_token_id": 101, "sep_token_id": 102,
        },
    ),
}  # fmt: skip


def network(name: str) -> Any:
    """A small network with random weights, also where a new one has zeros or ones."""
    torch.manual_seed(0)
    kind, settings = NETWORKS[name]
    body = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**SHAPE | settings))
    for part, parameter in body.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float(part.endswith("weight")), std=0.2)
        elif "relative" in part:
            torch.nn.init.normal_(parameter)
    return body.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_and_pooling_is_torch_s(
    name: str, minilm_folder: Path, passages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the same, bit by bit, whether AMX computes the products or not."""
    body, weights = network(name), tmp_path / "weights.npz"
    np.savez(weights, **network_arrays(body))
    for file, matrices in network_matrices(body):
        np.save(tmp_path / file, matrices)
    tokenizer = Tokenizer.from_file(str(minilm_folder / "tokenizer.json"))
    tokenizer.enable_truncation(290)
    tokenizer.enable_padding()
    encodings = tokenizer.encode_batch([*passages[:5], "a [PAD] b", "word " * 400])
    ids, mask = (np.array([getattr(each, part) for each in encodings]) for part in ("ids", "attention_mask"))
    rows = [each[: kept.sum()] for each, kept in zip(ids, mask, strict=True)]
    with torch.inference_mode():
        states = [body(torch.from_numpy(row)[None]).last_hidden_state[0].numpy() for row in rows]
    for pooling in ("cls", "mean", "last_token"):
        found, reference = PackedModel(weights, pooling).vectors(ids, mask), Fp32Model(weights, pooling)
        for row, hidden, vector in zip(rows, states, found, strict=True):
            pooled = {"cls": hidden[0], "mean": hidden.mean(0), "last_token": hidden[-1]}[pooling]
            assert np.abs(vector - pooled).max() < 1e-2
            assert np.abs(reference.vector(row) - pooled).max() < 5e-5
            assert vector @ pooled > 0.99999 * np.linalg.norm(vector) * np.linalg.norm(pooled)
    pretend(monkeypatch, amx=False)
    assert (PackedModel(weights, pooling).vectors(ids, mask) == found).all()  # those of the last pooling


def turned_by_length() -> Any:
    turned = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    return GteModel(GteConfig(**SHAPE, pad_token_id=0, rope_parameters=turned))


OTHERS: dict[str, Callable[[], Any]] = {
    "it is a ElectraModel": lambda: ElectraModel(ElectraConfig(**SHAPE)),
    "BertModel with relu": lambda: BertModel(BertConfig(**SHAPE, hidden_act="relu")),
    "it is a decoder": lambda: BertModel(BertConfig(**SHAPE, is_decoder=True)),
    "rotary positions are of the type dynamic": turned_by_length,
}


@pytest.mark.parametrize("said", OTHERS)
def test_another_model_is_refused(said: str, saved: Saved, opened: Opened, own_models: Path) -> None:
    with pytest.raises(InputError, match=f"packed in int16: ValueError: .*{said}.*model.backend to openvino"):
        opened(Store(own_models), name=saved(OTHERS[said]()), **NATIVE)
    assert not list(own_models.glob("native/*/manifest.json"))


def test_it_is_compiled_once_and_what_is_kept_gives_the_same_vectors(
    store: Store, opened: Opened, tmp_path: Path
) -> None:
    encoder, ids = opened(store, **MINILM), np.arange(1000, 1400).reshape(4, 100)
    np.save(tmp_path / "found.npy", encoder.backend.network.vectors(ids, np.ones_like(ids)))
    packed = resolve(BACKENDS.make(**MINILM)).prepare(store)
    assert packed is not None
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from pipeline.native import forward, vectors\n"
        "forward.compile_forward()\n"
        "before, ids = forward.compute.signatures, np.arange(1000, 1400).reshape(4, 100)\n"
        "found = vectors.PackedModel(Path(sys.argv[1]), 'mean').vectors(ids, np.ones_like(ids))\n"
        "print(len(before), forward.compute.signatures == before, (found == np.load(sys.argv[2])).all())\n"
        "print(sum(forward.compute.stats.cache_hits.values()))\n"
    )
    files = str(packed.folder / "weights.npz"), str(tmp_path / "found.npy")
    assert process(tmp_path, "-c", script, *files).stdout.split() == ["1", "True", "True", "1"]


def test_a_token_without_an_embedding_is_refused(saved: Saved, opened: Opened, store: Store) -> None:
    folder = saved(BertModel(BertConfig(**{**SHAPE, "vocab_size": 5000})))
    with pytest.raises(InputError, match=r"gives token \d+, and its weights hold rows 0 to 4999"):
        opened(store, name=folder, **NATIVE)


@pytest.mark.parametrize(("kind", "longest"), [("Bert", 40), ("Roberta", 38)])
def test_a_position_without_an_embedding_is_refused(
    kind: str, longest: int, saved: Saved, opened: Opened, store: Store
) -> None:
    """What `config.json` says is not always there, and Numba does not look."""
    config = getattr(transformers, f"{kind}Config")(**SHAPE, pad_token_id=1, max_position_embeddings=40)
    native = opened(store, name=saved(getattr(transformers, f"{kind}Model")(config)), **NATIVE)
    assert encoded(native, ["word " * 99], longest)[0].all()
    with pytest.raises(InputError, match=rf"has {longest + 1} tokens, and .* has positions for {longest}\."):
        encoded(native, ["word " * 99], longest + 1)


def test_what_the_machine_has_is_used_or_missed(
    store: Store, opened: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    for native, said in ((True, 0), (False, 1)):
        pretend(monkeypatch, vnni=native)
        with caplog.at_level(logging.WARNING):
            assert opened(store, **MINILM).backend.threads == 3
        assert len([line for line in caplog.messages if "no VNNI" in line]) == said


def test_what_it_keeps_is_told_without_numba(minilm_folder: Path) -> None:
    script = (
        "import sys\n"
        "from pipeline.config import BACKENDS\n"
        "from pipeline.encoders import resolve\n"
        f"config = BACKENDS.make(name={str(minilm_folder)!r}, backend='native', precision='int16')\n"
        "kept = list(resolve(config).ingredients('passages'))\n"
        "print(kept, {'numba', 'tokenizers', 'torch'} & set(sys.modules))\n"
    )
    assert process(minilm_folder, "-c", script).stdout == "['model', 'prepared'] set()\n"


def test_processors_that_add_up_in_another_order_share_no_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 8 numbers in a register and with 16, a random network's vectors differ by up to 9e-5."""
    keys = []
    for flags in ("avx fma avx512f avx512_vnni", "avx fma avx2 avx_vnni", "avx fma avx512f"):
        pretend(monkeypatch, flags={*flags.split()})
        keys.append(resolve(BACKENDS.make(**MINILM)).ingredients("passages"))
    assert keys[0] == keys[2] != keys[1]
