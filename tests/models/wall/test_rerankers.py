"""Rerankers give the scores of their own library, or are refused with the reason: a wall of their own.

A tiny network of each kind is made once. The library's scores are those of each pair alone, by
`CrossEncoder.predict` of sentence-transformers or by `compute_score` of FlagEmbedding.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.wall.folders import (
    SAFE,
    in_turn,
    lose,
    merge,
    prefix,
    put,
    save_network,
    set_json,
    tensors,
    write,
)
from workplaces import BAR

from pipeline import InputError
from pipeline.config import RERANKERS, as_config
from pipeline.encoders import Usage, resolve, settle
from pipeline.storage import Store

PAIRS = [
    ("how do pilots guide ships", "some words in one two three"),
    ("how do pilots guide ships", "pilots guide ships, in 2023!"),
    ("one\ntwo", "a"),
    ("how long", "long " * 200 + "end"),
]
BACKENDS = {"f": "flag", "s": "sentence-transformers", "o": "openvino"}
LABELS = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
CLASSIFIER, CAUSAL = "ForSequenceClassification", "ForCausalLM"
LIMITS = {"fp32": 2e-5, "bf16": 0.03}


@dataclass(frozen=True)
class Case:
    """A reranker's folder.

    Attributes:
        title: What is special about it.
        network: A key of `NETWORKS`.
        runs: The first letters of the backends that run it.
        refused: What the others say, a regular expression.
        auto: The backend that `auto` takes; "" is not asked.
        head: The end of the network's class.
        edit: Changes the folder.
        settings: Of the section `rerank`.
        tried: The first letters of the backends that are tried. OpenVINO converts in a process, so it
            is left out where it reads the same as `flag` or refuses all networks of a kind.
    """

    title: str
    network: str = "BERT"
    runs: str = "fso"
    refused: str = "-"
    auto: str = "openvino"
    head: str = CLASSIFIER
    edit: Callable[[Path], object] = lambda _: None
    settings: dict[str, Any] = field(default_factory=dict)
    tried: str = "fso"


def _typed(folder: Path) -> None:
    merge(folder, "tokenizer_config.json", {"model_input_names": ["input_ids", "attention_mask"]})


def _modules(*more: Any) -> Callable[[Path], None]:
    """Save it as a CrossEncoder with further modules."""

    def edit(folder: Path) -> None:
        from sentence_transformers import CrossEncoder

        whole = CrossEncoder(str(folder), device="cpu")
        CrossEncoder(modules=[*whole, *(make() for make in more)]).save_pretrained(str(folder))

    return edit


def _dense() -> Any:
    from sentence_transformers.base.modules import Dense

    names = {"module_input_name": "scores", "module_output_name": "scores"}
    dense = Dense(1, 1, activation_function=torch.nn.Tanh(), **names)
    torch.nn.init.constant_(dense.linear.weight, -3.0)
    torch.nn.init.constant_(dense.linear.bias, 0.5)
    return dense


TEMPLATE = put(
    "chat_template.jinja",
    b"{% for message in messages %}{{ message['role'] }}: {{ message['content'] }} {% endfor %}",
)
MEAN = b"""
import torch
from transformers import BertModel, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class Mean(PreTrainedModel):
    base_model_prefix = "bert"

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.classifier = torch.nn.Linear(config.hidden_size, 1)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, return_dict=True, **_):
        hidden = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state
        mask = attention_mask[..., None].to(hidden.dtype)
        return SequenceClassifierOutput(logits=self.classifier((hidden * mask).sum(1) / mask.sum(1)))
"""
OWN = in_turn(
    put("modeling_mean.py", MEAN),
    set_json("config.json", auto_map={"AutoModelForSequenceClassification": "modeling_mean.Mean"}),
)
OWN_CLASS = in_turn(OWN, set_json("config.json", architectures=["Mean"]))


def _named(*parts: str) -> dict[str, Any]:
    return {"id2label": {str(at): part for at, part in enumerate(parts)}}


def _activation(name: str) -> Callable[[Path], None]:
    return set_json("config.json", sentence_transformers={"activation_fn": name})


def _in_half(folder: Path) -> None:
    tensors(folder, lambda all_: {name: value.bfloat16() for name, value in all_.items()})


def _as_bin(folder: Path) -> None:
    from safetensors.torch import load_file

    torch.save(load_file(folder / SAFE), folder / "pytorch_model.bin")
    (folder / SAFE).unlink()


def _further_token(folder: Path) -> None:
    from workplaces import read_json

    content = read_json(folder / "tokenizer.json")
    added = {**content["added_tokens"][0], "id": len(content["model"]["vocab"]), "content": "ships,"}
    write(folder, "tokenizer.json", {**content, "added_tokens": [*content["added_tokens"], added]})


def _relative(folder: Path) -> None:
    place = "bert.encoder.layer.0.attention.self.distance_embedding.weight"
    tensors(folder, lambda all_: {**all_, place: torch.zeros(255, 32)})


ENCODERS = (
    "RoBERTa", "XLM-R", "CamemBERT", "DistilBERT", "MPNet", "ModernBERT", "ALBERT", "ELECTRA", "DeBERTa-v2",
    "ERNIE",
)  # fmt: skip
DECODERS = ("Qwen2", "Qwen3", "Mistral", "Llama", "Gemma2")
TRACE = "cannot be converted|files lack 1 weight"
WALL = (
    Case("BERT"),
    *(Case(network, network) for network in ENCODERS),
    *(Case(f"{network} with a head", network, "fs", TRACE, "flag") for network in DECODERS[:2]),
    # FlagEmbedding decodes tokens and reads the text anew, which changes the tokens of these
    *(
        Case(f"{network} with a head", network, "s", "other scores", BACKENDS["s"], tried="fs")
        for network in DECODERS[2:]
    ),
    *(
        Case(f"{network} of FlagEmbedding", network, "fs", TRACE, "flag", head=CAUSAL, tried="fs")
        for network in DECODERS
    ),
    *(
        Case(f"{network} with a chat template", network, "fs", TRACE, BACKENDS["s"], CAUSAL, TEMPLATE,
             tried="fs")
        for network in ("Qwen3", "Llama")
    ),
    Case("saved LogitScore", "Qwen3", "s", "has the", "sentence-transformers", CAUSAL, _modules()),
    Case("no token types in the tokenizer", edit=_typed, tried="fs"),
    Case("token types of DeBERTa", "DeBERTa-v2", edit=set_json("config.json", type_vocab_size=2), runs="",
         refused="other shapes|lack", auto=""),
    *(
        Case(f"{network}: {side} left", network, edit=set_json("tokenizer_config.json", **{side: "left"}),
             tried="fs")
        for network in ("BERT", "XLM-R")
        for side in ("padding_side", "truncation_side")
    ),
    Case("chat template of an encoder", auto="sentence-transformers", edit=TEMPLATE, tried="fs"),
    Case("a Dense behind", runs="s", refused="modules Transformer, Dense", auto="sentence-transformers",
         edit=_modules(_dense)),
    *(
        Case(f"activation {name}", edit=_activation(name), tried="s")
        for name in ("torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh", "my.own.Act")
    ),
    *(
        Case(f"{network} in bf16", network, runs, TRACE, "", settings={"precision": "bf16"}, tried=runs)
        for network, runs in (("BERT", "fso"), ("XLM-R", "fs"), ("Qwen3", "fs"))
    ),
    Case("weights in bf16", edit=_in_half, settings={"precision": "fp32"}, tried="fs"),
    Case("weights in .bin", edit=_as_bin, tried="fs"),
    Case("max_length 64", settings={"max_length": 64}, tried="fs"),
    # refused
    Case("no pooler of DeBERTa", "DeBERTa-v2", "", r"files lack 2 weights, such as pooler", "",
         edit=lose("pooler.")),
    Case("no pooler of BERT", runs="", refused=r"files lack 2 weights, such as bert\.pooler", auto="",
         edit=lose("pooler.")),
    Case("no head", runs="", refused="files lack", auto="", edit=lose("classifier.")),
    Case("a wrapper's prefix", runs="", refused="files lack", auto="", edit=prefix("module.")),
    Case("one layer of two", runs="", refused="leaves out 16 weights", auto="",
         edit=set_json("config.json", num_hidden_layers=1)),
    Case("relative positions", runs="", refused="leaves out 1 weight", auto="", edit=_relative),
    Case("quantised", runs="", refused="are quantized", auto="",
         edit=set_json("config.json", quantization_config={"quant_method": "awq"})),
    Case("three values", runs="", refused="3 values", auto="",
         edit=set_json("config.json", **_named("a", "b", "c"))),
    Case("a token beyond the embeddings", runs="", refused="gives token 15", auto="", edit=_further_token),
    Case("own class that does not run", runs="", refused="is a Mean", auto="",
         edit=OWN_CLASS),
    Case("own class", refused=TRACE, auto="flag",
         edit=in_turn(OWN_CLASS, set_json("config.json", architectures=["BertForSequenceClassification"])),
         settings={"trust_remote_code": True}),
)  # fmt: skip


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    base = tmp_path_factory.mktemp("rerankers")

    def folder(case: Case) -> Path:
        path = base / f"{case.network}{case.head}"
        if not path.exists():
            path.mkdir()
            save_network(
                path, case.network, case.head, **({"num_labels": 1} if case.head == CLASSIFIER else {})
            )
        return path

    return folder


def library(backend: str, case: Case, folder: Path) -> Any:
    """The scores of the model's own library, of each pair alone."""
    trusted, length = case.settings.get("trust_remote_code", False), case.settings.get("max_length", 128)
    if backend == "sentence-transformers":
        from sentence_transformers import CrossEncoder

        peer: Any = CrossEncoder(
            str(folder), device="cpu", trust_remote_code=trusted, max_length=min(length, 96)
        )
        return np.concatenate([peer.predict([list(pair)], batch_size=1) for pair in PAIRS])
    from FlagEmbedding import FlagAutoReranker

    kind = "decoder-only-base" if case.head == CAUSAL else "encoder-only-base"
    peer = FlagAutoReranker.from_finetuned(
        str(folder), model_class=kind, devices=["cpu"], use_fp16=False, trust_remote_code=trusted
    )
    return np.array([peer.compute_score([pair], max_length=length, batch_size=2)[0] for pair in PAIRS])


def fault(case: Case, backend: str, folder: Path, store: Store, runs: bool) -> str:
    """What a backend does to a folder that it should not do; "" for nothing."""
    settings = {"backend": backend, "name": str(folder), **case.settings}
    try:
        scores = resolve(RERANKERS.make(**settings)).open(store).score(PAIRS, Usage(), BAR)
    except InputError as error:
        if runs:
            return f"{backend} refuses it: {error}"
        return "" if re.search(case.refused, str(error)) else f"{backend} refuses it otherwise: {error}"
    if not runs and case.refused != "-":
        return f"{backend} runs it: {scores}"
    if case.runs and backend[0] in case.runs:
        expected = library(backend, case, folder)
        difference = np.abs(scores - expected).max()
        if not difference < LIMITS[case.settings.get("precision", "fp32")]:
            return f"{backend} gives {scores}, and its library {expected}"
    return ""


def faults(case: Case, folder: Path, store: Store) -> list[str]:
    """What backends, and `auto`, do to a folder that they should not do."""
    tried = {letter: name for letter, name in BACKENDS.items() if letter in case.tried}
    found = [fault(case, name, folder, store, letter in case.runs) for letter, name in tried.items()]
    if case.auto:
        sections = {"data": {"source": "sample"}, "model": {"backend": "bm25"}}
        rerank = {"name": str(folder), **case.settings}
        taken = settle(as_config({"name": "t", **sections, "rerank": rerank})).rerank
        if taken.backend != case.auto:
            found.append(f"auto takes {taken.backend}")
    return [*filter(None, found)]


@pytest.mark.parametrize("case", WALL, ids=lambda case: case.title)
def test_every_backend_gives_the_scores_of_the_library_or_refuses(
    case: Case, networks: Callable[[Case], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(networks(case), tmp_path / "model")
    case.edit(folder)
    assert faults(case, folder, Store(tmp_path / "store")) == []
