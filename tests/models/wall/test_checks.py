"""Checks of loaded networks: what their files declare is used, or the model is refused.

The reports are named by the kind of fault: a reference that is loaded by the same call has the same fault,
so what is expected here is written out, or made of a class built without `from_pretrained`.
"""

import ast
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.wall.folders import NORMALIZE, dense, merge, pooling, save_modules, save_network, tensors
from transformers import AutoTokenizer, BertModel
from workplaces import BAR

from pipeline import InputError
from pipeline.config import BACKENDS, as_config
from pipeline.encoders import Usage, resolve, settle
from pipeline.storage import Store

TEXTS = ["how do pilots guide ships", "some words in one two three long [NEW]"]
TORCH = ("flag", "sentence-transformers")


@pytest.fixture(scope="module")
def bert(make_once: Callable[..., Path]) -> Path:
    return make_once("checks-bert", lambda folder: save_network(folder, "BERT"))


@pytest.fixture
def folder(bert: Path, tmp_path: Path) -> Path:
    """A copy of a BERT."""
    copied = tmp_path / "model"
    copied.mkdir()
    for path in bert.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    return copied


@pytest.fixture
def vectors(tmp_path: Path) -> Callable[..., Any]:
    """What a backend makes of `TEXTS`, its own store apart."""

    def encode(folder: Path, backend: str, **settings: Any) -> Any:
        given = {"pooling": "cls", "precision": "int16" if backend == "native" else "fp32", **settings}
        opener = resolve(BACKENDS.make(backend=backend, name=str(folder), **given))
        return opener.open(Store(tmp_path / "store")).encode(TEXTS, "passages", Usage(), BAR)

    return encode


PACKAGE = Path(__file__).parents[3] / "pipeline"
LOADERS = ("from_pretrained", "from_finetuned")
CLASSES = ("SentenceTransformer", "SparseEncoder", "MultiVectorEncoder", "CrossEncoder")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """The functions that hold no other."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            inner = [other for other in ast.walk(node) if isinstance(other, ast.FunctionDef)]
            if len(inner) == 1:
                yield node


def loads(node: ast.AST) -> bool:
    """Whether a call loads a network."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        owner = getattr(node.func.value, "id", "")
        return node.func.attr in LOADERS and owner not in ("AutoTokenizer", "PeftConfig")
    return isinstance(node.func, ast.Name) and node.func.id in (*CLASSES, "encoder")


def test_every_network_is_loaded_where_it_is_checked() -> None:
    outside, inside = list[str](), 0
    for path in sorted(PACKAGE.rglob("*.py")):
        for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
            guarded = {
                id(node)
                for block in ast.walk(function)
                if isinstance(block, ast.With) and "loading(" in ast.unparse(block.items[0])
                for node in ast.walk(block)
            }
            for node in filter(loads, ast.walk(function)):
                inside += id(node) in guarded
                if id(node) not in guarded:
                    outside.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert not outside
    assert inside >= 5  # flag and sentence-transformers, of texts and of pairs, and what is converted


OWN = '''
import torch
from transformers import BertModel, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput


class Own(PreTrainedModel):
    """Adds a table that is in no file, and has no `get_input_embeddings`."""

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        table = {table}
        self.register_buffer("table", table, persistent=False)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, return_dict=True, **_):
        hidden = self.bert(input_ids, attention_mask).last_hidden_state
        return BaseModelOutput(last_hidden_state=hidden + self.table[: hidden.shape[1]])
'''
SINES = "torch.sin(torch.arange(512 * 64).float()).view(512, 64)"


def add_code(folder: Path, table: str = SINES) -> None:
    """Let a BERT come with Python files of its own."""
    (folder / "modeling_own.py").write_text(OWN.replace("{table}", table), encoding="utf-8")
    tensors(folder, lambda all_: {f"bert.{name}": value for name, value in all_.items()})
    merge(folder, "config.json", {"architectures": ["Own"], "auto_map": {"AutoModel": "modeling_own.Own"}})


def by_hand(folder: Path) -> Any:
    """What `Own` makes of texts: each one alone by a BERT, and the table added."""
    body = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    table = torch.sin(torch.arange(512 * 64).float()).view(512, 64)
    with torch.inference_mode():
        states = [body(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 0] for text in TEXTS]
    return torch.stack(states) + table[0]


@pytest.mark.parametrize("backend", [*TORCH, "openvino"])
def test_buffers_of_own_code_that_are_in_no_file_are_those_that_its_class_makes(
    backend: str, folder: Path, vectors: Callable[..., Any]
) -> None:
    """Transformers leaves them as its loader finds the memory: cosines of 0.034 and 0.927."""
    expected = by_hand(folder).numpy()
    add_code(folder)
    found = vectors(folder, backend, trust_remote_code=True)
    assert np.abs(found - expected).max() < 1e-4


def test_buffers_that_own_code_draws_at_random_are_refused(folder: Path, vectors: Callable[..., Any]) -> None:
    add_code(folder, "torch.randn(512, 64)")
    with pytest.raises(InputError, match="its buffer table is in no file, and its Python files make another"):
        vectors(folder, "flag", trust_remote_code=True)


def test_own_code_that_does_not_run_is_named_and_another_class_in_its_place_refused(
    folder: Path, vectors: Callable[..., Any]
) -> None:
    """Cosines of -0.25 to 0.95 for BERT, Qwen2, Qwen3 and Mistral, without a word."""
    merge(folder, "config.json", {"auto_map": {"AutoModel": "modeling_own.Own"}})
    opener = resolve(BACKENDS.make(backend="flag", name=str(folder), pooling="cls"))
    assert "own code modeling_own.Own does not run (config)" in opener.model.describe()
    vectors(folder, "flag")
    merge(folder, "config.json", {"architectures": ["Own"]})
    for backend in (*TORCH, "openvino"):
        with pytest.raises(InputError, match="it is a Own, and transformers would run its own BertModel"):
            vectors(folder, backend)


@pytest.mark.parametrize("backend", [*TORCH, "openvino"])
@pytest.mark.parametrize("layers", [1, 2])
def test_weights_that_the_network_leaves_out_are_refused(
    backend: str, layers: int, folder: Path, vectors: Callable[..., Any]
) -> None:
    """`relative_key`: transformers 5 has no such positions, and drops their weights; a cosine of 0.955."""
    if layers == 2:
        places = {
            f"encoder.layer.{n}.attention.self.distance_embedding.weight": torch.zeros(255, 32)
            for n in (0, 1)
        }
        tensors(folder, lambda all_: {**all_, **places})
    merge(folder, "config.json", {"num_hidden_layers": layers})
    with pytest.raises(InputError, match=r"BertModel leaves out \d+ weights of its files, such as encoder"):
        vectors(folder, backend)


def test_a_declared_direction_of_attention_that_the_network_does_not_obey_is_refused(
    make_once: Callable[..., Path], tmp_path: Path, vectors: Callable[..., Any]
) -> None:
    """`use_bidirectional_attention`, which five decoders of transformers ignore, and Gemma3 obeys."""
    for network, obeys in (("Qwen3", False), ("Gemma2", False), ("Gemma3", True)):
        source = make_once(f"checks-{network}", lambda made, name=network: save_network(made, name))
        folder = tmp_path / network
        folder.mkdir()
        for path in source.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        merge(folder, "config.json", {"use_bidirectional_attention": True})
        if obeys:
            vectors(folder, "flag", pooling="last_token")
        else:
            with pytest.raises(InputError, match="declares attention in both directions"):
                vectors(folder, "flag", pooling="last_token")
        merge(folder, "config.json", {"use_bidirectional_attention": None, "is_causal": False})
        vectors(folder, "flag", pooling="last_token")


@pytest.mark.parametrize("backend", [*TORCH, "openvino"])
def test_tokens_without_an_embedding_are_refused_before_every_backend(
    backend: str, folder: Path, vectors: Callable[..., Any]
) -> None:
    """OpenVINO took a row of zeros for them."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    number = len(tokenizer["model"]["vocab"])
    added = {**tokenizer["added_tokens"][0], "id": number, "content": "[NEW]", "special": False}
    (folder / "tokenizer.json").write_text(
        json.dumps({**tokenizer, "added_tokens": [*tokenizer["added_tokens"], added]}), encoding="utf-8"
    )
    with pytest.raises(
        InputError, match=rf"gives token {number}, and its weights hold rows 0 to {number - 1}"
    ):
        vectors(folder, backend)


def test_networks_that_read_padding_get_texts_of_equal_length(
    make_once: Callable[..., Path], tmp_path: Path
) -> None:
    """FNet mixes all tokens of a row, padding included; its remedy led nowhere."""
    folder = make_once("checks-FNet", lambda made: save_network(made, "FNet"))
    opener = resolve(BACKENDS.make(backend="flag", name=str(folder), pooling="mean"))
    encoder = opener.open(Store(tmp_path / "store"))
    texts = [*TEXTS, "one two three four", "in long words", "a"]
    together = encoder.encode(texts, "passages", Usage(), BAR)
    alone = [encoder.encode([text], "passages", Usage(), BAR)[0] for text in texts]
    assert np.abs(together - np.stack(alone)).max() < 1e-5
    assert encoder.backend.reads_padding
    converted = BACKENDS.make(backend="openvino", name=str(folder), pooling="mean", precision="fp32")
    with pytest.raises(InputError, match=r"padding changes what it computes.*Set model\.backend to flag"):
        resolve(converted).open(Store(tmp_path / "store"))


@pytest.mark.parametrize(
    ("modules", "similarity"), [([dense()], "dot"), ([NORMALIZE, dense()], "dot"), ([dense(), NORMALIZE], "")]
)
def test_only_a_last_module_makes_all_similarities_one(
    modules: list[Any], similarity: str, folder: Path
) -> None:
    """A Normalize before a Dense hid the declared inner product: 9.9% of the first tens were shared."""
    save_modules(folder, [pooling("mean"), *modules])
    merge(folder, "config_sentence_transformers.json", {"similarity_fn_name": "dot"})
    settings = BACKENDS.make(backend="sentence-transformers", name=str(folder))
    assert resolve(settings).model.similarity == similarity


@pytest.mark.parametrize("backend", [*TORCH, "openvino", "native"])
def test_lengths_that_special_tokens_fill_are_refused(backend: str, folder: Path) -> None:
    """The tokenizer cut nothing: 1 token was reported, and the whole text was read."""
    merge(folder, "sentence_bert_config.json", {"max_seq_length": 2})
    precision = {"precision": "int16"} if backend == "native" else {}
    with pytest.raises(
        InputError, match=r"keeps 2 tokens of (queries|passages), .* take 2\. Allowed: 3 or more"
    ):
        resolve(BACKENDS.make(backend=backend, name=str(folder), **precision))


def test_modules_in_another_order_are_run_or_refused(folder: Path) -> None:
    save_modules(folder, [pooling("mean"), NORMALIZE, ("Router", {}, {})])
    for backend in TORCH:
        with pytest.raises(InputError, match="Router"):
            resolve(BACKENDS.make(backend=backend, name=str(folder)))


def test_auto_takes_the_library_where_it_alone_runs_a_model(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_modules(folder, [pooling("mean"), dense()])
    sections = {"data": {"source": "sample"}, "model": {"name": str(folder)}}
    with caplog.at_level(logging.INFO):
        taken = settle(as_config({"name": "t", **sections})).model
    assert taken.backend == "sentence-transformers"
    (said,) = caplog.messages
    assert "auto takes backend sentence-transformers" in said
    assert "has a module Dense" in said


def test_doctor_lists_each_check_with_its_figure(folder: Path, tmp_path: Path) -> None:
    opener = resolve(BACKENDS.make(backend="flag", name=str(folder), pooling="cls"))
    found = opener.checks(Store(tmp_path / "store"))
    assert found["code"] == "BertModel of transformers"
    assert found["weights that its files lack"] == "none"
    assert found["attention"] == "a token sees those before and after it"
    assert set(found) == {
        "code", "weights that its files lack", "weights that are not used", "buffers that are in no file",
        "attention", "padding",
    }  # fmt: skip
