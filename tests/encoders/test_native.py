"""The native backend: which models it takes, what it says of others; a text's company moves no bit."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import BACKENDS
from pipeline.config.files import load_config
from pipeline.core import machine
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.records import Float32
from pipeline.encoders import Model, Network, open_encoder, resolve
from pipeline.encoders import native as native_backend
from pipeline.encoders import native_packing as packing
from pipeline.encoders.batching import TokenBatch, Usage, encode
from pipeline.encoders.conversion import Settings
from pipeline.encoders.native import NativeBackend
from pipeline.native import architectures, vectors
from pipeline.native.vectors import Fp32Model, PackedModel
from pipeline.storage.store import Store

pytestmark = pytest.mark.usefixtures("quick_conversion")

SHAPE = {
    "vocab_size": 30522, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 128, "initializer_range": 0.3,
}  # fmt: skip


@pytest.fixture
def saved(bge_folder: Path, tmp_path: Path) -> Callable[[Any], Path]:
    """Writes a model into a folder that has the tokenizer of another."""

    def save(model: Any) -> Path:
        folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
        model.save_pretrained(folder)
        return folder

    return save


def backend(folder: Path | str, store: Store, **settings: Any) -> NativeBackend:
    config = BACKENDS.make(name=str(folder), backend="native", precision="int16", **settings)
    model = resolve(config)
    assert isinstance(model, Model)
    return open_encoder(config, model, store).backend


def encoded(
    backend: NativeBackend, texts: list[str], batch_size: int | None = None, usage: Usage | None = None
) -> Float32:
    with silent("", None, "") as bar:
        return encode(backend, texts, 512, usage or Usage(), bar, batch_size)


def test_no_text_s_vector_depends_on_its_company(passages: list[str], store: Store) -> None:
    native = backend("all-minilm-l6-v2", store)
    texts = [*passages[:40], "", "a", "long " * 700]
    together = encoded(native, texts)
    assert (encoded(native, texts, batch_size=1) == together).all()
    assert (encoded(native, texts[::-1])[::-1] == together).all()
    native.token_budget, native.threads = 200, 1
    assert (encoded(native, texts) == together).all()


def test_a_first_token_s_state_is_the_same_whether_the_others_are_wanted_or_not(
    tmp_path: Path,
) -> None:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    np.savez(tmp_path / "w.npz", **vectors.network_arrays(BertModel(BertConfig(**SHAPE))))
    network, generator = PackedModel(tmp_path / "w.npz", "cls"), np.random.default_rng(0)
    for tokens in range(1, 130):
        ids = generator.integers(0, SHAPE["vocab_size"], (2000 // tokens, tokens))
        mask = np.ones_like(ids)
        states, texts = network.hidden(ids, mask, only_first=False)
        assert (network.vectors(ids, mask) == states[texts[:-1]]).all()


def test_padding_costs_nothing_and_is_not_counted(passages: list[str], store: Store) -> None:
    usage = Usage()
    encoded(backend("all-minilm-l6-v2", store), passages[:40], usage=usage)
    assert usage.tokens == usage.padded > 0
    assert usage.figures()["padding_share"] == 0


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
    import torch
    import transformers

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
    name: str,
    saved: Callable[[Any], Path],
    own_models: Path,
    passages: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the same, bit by bit, whether AMX computes the products or not."""
    import torch

    body = network(name)
    native = backend(saved(body), Store(own_models))
    (weights,) = own_models.glob("native/*/weights.npz")
    texts = [*passages[:5], "a [PAD] b", "word " * 400]
    for pooling in ("cls", "mean", "last_token"):
        reference = Fp32Model(weights, pooling)
        native.network = PackedModel(weights, pooling)
        with silent("", None, "") as bar:
            found = encode(native, texts, 290, Usage(), bar)
            with monkeypatch.context() as patch:
                patch.setattr(machine, "has_amx", lambda: False)
                native.network = PackedModel(weights, pooling)
            assert (encode(native, texts, 290, Usage(), bar) == found).all()
        for text, vector in zip(texts, found, strict=True):
            ids = torch.tensor([native.tokenizer.encode(text).ids[:290]])
            with torch.inference_mode():
                hidden = body(ids, torch.ones_like(ids)).last_hidden_state[0].numpy()
            pooled = {"cls": hidden[0], "mean": hidden.mean(0), "last_token": hidden[-1]}[pooling]
            assert np.abs(vector - pooled).max() < 1e-2
            assert np.abs(reference.vector(ids[0].numpy()) - pooled).max() < 5e-5
            assert vector @ pooled > 0.99999 * np.linalg.norm(vector) * np.linalg.norm(pooled)


def test_the_types_that_are_known_are_those_that_are_taken_apart() -> None:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    taken = {name.rpartition(".")[2] for name in architectures.ARCHITECTURES}
    assert {MODEL_MAPPING_NAMES[kind] for kind in native_backend.TYPES} == taken


def other_models() -> dict[str, tuple[Callable[[], Any], str]]:
    from transformers import BertConfig, BertModel, ElectraConfig, ElectraModel, GteConfig, GteModel

    turned = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    return {
        "another kind": (lambda: ElectraModel(ElectraConfig(**SHAPE)), "it is a ElectraModel"),
        "no GELU": (lambda: BertModel(BertConfig(**SHAPE, hidden_act="relu")), "BertModel with relu"),
        "a decoder": (lambda: BertModel(BertConfig(**SHAPE, is_decoder=True)), "it is a decoder"),
        "turned by length": (
            lambda: GteModel(GteConfig(**SHAPE, pad_token_id=0, rope_parameters=turned)),
            "rotary positions are of the type dynamic",
        ),
    }


@pytest.mark.parametrize("case", ["another kind", "no GELU", "a decoder", "turned by length"])
def test_another_model_is_refused(case: str, saved: Callable[[Any], Path], tmp_path: Path) -> None:
    make, said = other_models()[case]
    with pytest.raises(ValueError, match=said):
        packing.pack_model(saved(make()), tmp_path / "weights.npz", Settings("it", "cls", 0, False))
    assert not (tmp_path / "weights.npz").exists()


def test_what_is_refused_is_said_with_what_to_do(saved: Callable[[Any], Path], own_models: Path) -> None:
    make, said = other_models()["no GELU"]
    with pytest.raises(InputError, match=f"packed in int16: ValueError: .*{said}.*model.backend to openvino"):
        backend(saved(make()), Store(own_models))
    assert not list(own_models.glob("native/*/manifest.json"))


def test_it_is_compiled_once_and_what_is_kept_gives_the_same_vectors(
    bge_folder: Path, own_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend(bge_folder, Store(own_models))
    (weights,) = own_models.glob("native/*/weights.npz")
    script = (
        "import hashlib\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from pipeline.native import forward, vectors\n"
        "forward.compile_forward()\n"
        "before = forward.forward.signatures\n"
        f"network = vectors.PackedModel(Path({str(weights)!r}), 'mean')\n"
        "found = network.vectors(np.arange(1000, 1400).reshape(4, 100), np.ones((4, 100), np.int64))\n"
        "print(hashlib.sha256(found).hexdigest())\n"
        "hits = sum(forward.forward.stats.cache_hits.values())\n"
        "print(len(before), forward.forward.signatures == before, hits)\n"
    )
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    compiled, kept = (
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    )
    assert (compiled[1], kept[1]) == ("1 True 0", "1 True 1")
    assert compiled[0] == kept[0]


def test_a_token_without_an_embedding_is_refused(saved: Callable[[Any], Path], store: Store) -> None:
    from transformers import BertConfig, BertModel

    folder = saved(BertModel(BertConfig(**{**SHAPE, "vocab_size": 5000})))
    with pytest.raises(InputError, match=r"gives token \d+, and its weights hold 5000"):
        backend(folder, store)
    native = backend("all-minilm-l6-v2", store)
    ids = np.array([[101, 30522, 102]])
    with pytest.raises(InputError, match="gives token 30522, and its weights hold 30522"):
        list(native.forward(iter([TokenBatch(np.zeros(1, np.int64), ids, np.ones_like(ids))])))


@pytest.mark.parametrize(("kind", "longest"), [("Bert", 40), ("Roberta", 38)])
def test_a_position_without_an_embedding_is_refused(
    kind: str, longest: int, saved: Callable[[Any], Path], store: Store
) -> None:
    """What `config.json` says is not always there, and Numba does not look."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**SHAPE, pad_token_id=1, max_position_embeddings=40)
    native = backend(saved(getattr(transformers, f"{kind}Model")(config)), store)
    with silent("", None, "") as bar:
        assert encode(native, ["word " * 99], longest, Usage(), bar).all()
        with pytest.raises(
            InputError, match=rf"has {longest + 1} tokens, and .* has positions for {longest}\."
        ):
            encode(native, ["word " * 99], longest + 1, Usage(), bar)


def test_where_int16_is_not_native_it_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for native, said in ((True, 0), (False, 1)):
        monkeypatch.setattr(machine, "has_vnni", lambda native=native: native)
        with caplog.at_level(logging.WARNING):
            backend("all-minilm-l6-v2", store)
        assert len([line for line in caplog.messages if "no VNNI" in line]) == said


def test_it_takes_as_many_threads_as_it_may(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert backend("all-minilm-l6-v2", store).threads == 3


def test_its_precision_needs_no_mention_and_another_is_refused(tmp_path: Path) -> None:
    model = "{backend: native, name: all-minilm-l6-v2}"
    path = tmp_path / "c.yaml"
    path.write_text(f"name: t\ndata: {{source: sample}}\nmodel: {model}\n", encoding="utf-8")
    assert load_config(path).model.precision == "int16"
    with pytest.raises(InputError, match=r"'model.precision' is 'fp32' .*Allowed: 'int16'"):
        load_config(path, ["model.precision=fp32"])


def test_whether_a_tokenizer_s_own_code_may_run_is_in_the_key(bge_folder: Path) -> None:
    keys = set()
    for trust in (False, True):
        config = BACKENDS.make(
            name=str(bge_folder), backend="native", precision="int16", trust_remote_code=trust
        )
        keys |= {*Network(config, resolve(config)).prepared_keys().values()}
    assert len(keys) == 2


def test_what_it_keeps_is_told_without_numba(minilm_folder: Path) -> None:
    script = (
        "import sys\n"
        "from pipeline.config import BACKENDS\n"
        "from pipeline.encoders import Network, resolve\n"
        f"config = BACKENDS.make(name={str(minilm_folder)!r}, backend='native', precision='int16')\n"
        "kept = list(Network(config, resolve(config)).prepared_keys())\n"
        "print(kept, {'numba', 'tokenizers', 'torch'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['native'] set()\n"
