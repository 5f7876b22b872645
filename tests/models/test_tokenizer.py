"""One tokenizer for encoders and counts; those that are damaged, slow or read otherwise are refused."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel, WordPiece
from transformers import AutoTokenizer, ByT5Tokenizer
from workplaces import read_json

from pipeline import InputError
from pipeline.config import BACKENDS
from pipeline.encoders import resolve, tokenize
from pipeline.models import token_counter
from pipeline.storage import Store

Edit = Callable[..., Path]
TEXTS = ["Straße 2023", "", "word " * 700, "Two lines\nof one text."]


def described(model: WordPiece | WordLevel) -> Mapping[str, object]:
    """A tokenizer.json in which the token for unknown words has an id, and no place in the vocabulary."""
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(["[UNK]"])
    content: Mapping[str, object] = json.loads(tokenizer.to_str())
    return content


WORDS = {"a": 0, "b": 1}
REFUSED: dict[str, tuple[Mapping[str, object], str]] = {
    **{
        f"damaged: {content[:9]!r}": (
            {"tokenizer.json": content}, r"tokenizer\.json: not a tokenizer: .*\. Restore the model's files"
        )
        for content in (b"", b"{}", b"\xff\xfe", b'{"version": "1.0"')
    },
    **{
        f"without the token for unknown words: {kind.__name__}": (
            {"tokenizer.json": described(kind(WORDS, unk_token="[UNK]"))}, r"has no token '\[UNK\]'"
        )
        for kind in (WordPiece, WordLevel)
    },
    "made of nothing": ({"tokenizer.json": None, "vocab.txt": b""}, "has an empty vocabulary"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_tokenizer_that_cannot_encode_every_text_is_refused(case: str, edited: Edit) -> None:
    files, said = REFUSED[case]
    with pytest.raises(InputError, match=said):
        token_counter(resolve(BACKENDS.make(backend="flag", name=str(edited(files)))).model.tokenizer)


def test_a_slow_tokenizer_is_refused(edited: Edit) -> None:
    folder = edited({"tokenizer.json": None})
    ByT5Tokenizer().save_pretrained(folder)
    with pytest.raises(InputError, match="only a slow tokenizer, ByT5Tokenizer"):
        token_counter(resolve(BACKENDS.make(backend="flag", name=str(folder))).model.tokenizer)


@pytest.fixture
def xlm_roberta(m3_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a model with a vocabulary of XLM-R, whose tokenizer is said to be of a class."""

    def copy(kind: str) -> Path:
        folder = Path(shutil.copytree(m3_folder, tmp_path / "mmlw"))
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**read_json(path), "tokenizer_class": kind}), encoding="utf-8")
        return folder

    return copy


@pytest.mark.parametrize("kind", ["RobertaTokenizer", "BertTokenizer"])
def test_transformers_45920_a_class_of_another_vocabulary_is_refused(
    kind: str, xlm_roberta: Callable[..., Path]
) -> None:
    said = rf"is a Unigram by its tokenizer\.json, and a (BPE|WordPiece) by transformers, .* {kind}"
    with pytest.raises(InputError, match=said):
        resolve(BACKENDS.make(backend="flag", name=str(xlm_roberta(kind))))


def test_the_class_that_the_refusal_names_takes_the_file_as_it_is(
    xlm_roberta: Callable[..., Path], m3_folder: Path
) -> None:
    folder = xlm_roberta("PreTrainedTokenizerFast")
    models = [resolve(BACKENDS.make(backend="flag", name=str(name))).model for name in (folder, m3_folder)]
    counts = [token_counter(model.tokenizer)(TEXTS) for model in models]
    assert counts[0] == counts[1]


CASED: dict[str, Mapping[str, object]] = {
    "settings that transformers puts in place of the file's": {
        "tokenizer_config.json": {"do_lower_case": False, "strip_accents": False}
    },
    "a vocabulary without tokenizer.json": {"tokenizer.json": None},
}


@pytest.mark.parametrize("case", CASED)
def test_an_encoder_and_counts_of_tokens_have_one_tokenizer(case: str, edited: Edit, tmp_path: Path) -> None:
    folder = edited(CASED[case])
    opener = resolve(BACKENDS.make(backend="sentence-transformers", name=str(folder)))
    tokenizer = opener.open(Store(tmp_path)).backend.tokenizer
    by_transformers = AutoTokenizer.from_pretrained(folder)(TEXTS, truncation=True, max_length=512)[
        "input_ids"
    ]
    assert [ids.tolist() for ids in tokenize(tokenizer, TEXTS, 512)[0]] == by_transformers
    whole = AutoTokenizer.from_pretrained(folder)(TEXTS)["input_ids"]
    assert token_counter(opener.model.tokenizer)(TEXTS) == [len(ids) for ids in whole]


def test_another_node_s_library_that_reads_texts_otherwise_is_refused(edited: Edit, tmp_path: Path) -> None:
    opener = resolve(BACKENDS.make(backend="flag", name=str(edited({}))))
    edited({"tokenizer_config.json": {"do_lower_case": False}})
    with pytest.raises(InputError, match="reads texts otherwise than AutoTokenizer does"):
        opener.open(Store(tmp_path))
