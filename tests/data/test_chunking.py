"""Where texts are cut: worked by hand, and what holds for any text and any tokens."""

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pipeline import InputError
from pipeline.config import ChunkSettings
from pipeline.data import cut, cut_texts, word_spans

TEXT = 'One two. Three four five. "Six seven?" Dr. A. Eight nine ten, e.g. eleven twelve. Thirteen'


def words(text: str) -> list[tuple[int, int]]:
    """Every run of letters and every other mark is a token."""
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]


@pytest.mark.parametrize(
    ("text", "tokens", "overlap", "boundary", "expected"),
    [
        (TEXT, 100, 50, "sentence", [TEXT]),
        # marks are tokens too; initials and "e.g." end no sentence
        (TEXT, 13, 0, "sentence", ['One two. Three four five. "Six seven?"', "Dr.",
                                   "A. Eight nine ten, e.g. eleven twelve.", "Thirteen"]),
        # the four tokens of "Three four five." are repeated, the five of the next sentence are not; the
        # sentence of thirteen tokens is cut between words
        (TEXT, 9, 4, "sentence", ["One two. Three four five.", 'Three four five. "Six seven?"', "Dr.",
                                  "A. Eight nine ten,", "ten, e.g. eleven twelve.", "Thirteen"]),
        (TEXT, 6, 0, "token", ["One two. Three four", 'five. "Six', 'seven?" Dr.', "A. Eight nine ten,",
                               "e.g. eleven", "twelve. Thirteen"]),
        (TEXT, 6, 2, "token", ["One two. Three four", 'Three four five. "Six', '"Six seven?"',
                               "Dr. A. Eight nine", "Eight nine ten,", "ten, e.g.",
                               "eleven twelve. Thirteen"]),
        ("Short one. W0 W1 W2 W3 W4 W5 W6. Last words here.", 4, 1, "sentence",
         ["Short one.", "W0 W1 W2 W3", "W4 W5 W6.", "Last words here."]),
        ("第一句。第二句！Третье предложение. Четвёртое один\nЛиния два", 3, 0, "sentence",
         ["第一句。", "第二句！", "Третье предложение.", "Четвёртое один", "Линия два"]),
    ],
)  # fmt: skip
def test_cuts_by_hand(text: str, tokens: int, overlap: int, boundary: str, expected: list[str]) -> None:
    settings = ChunkSettings(tokens=tokens, overlap=overlap, boundary=boundary)
    assert [text[start:stop] for start, stop in cut(text, words(text), settings)] == expected


def test_a_word_that_is_too_long_is_cut_inside() -> None:
    letters = [(n, n + 1) for n in range(10)]
    settings = ChunkSettings(tokens=4, overlap=1, boundary="sentence")
    assert cut("abcdefghij", letters, settings) == [(0, 4), (3, 7), (6, 10)]


def test_words_are_those_of_bm25() -> None:
    from bm25s.tokenization import Tokenizer

    text = "It's a small-scale test, isn't it? Größe 42 x"
    tokenizer = Tokenizer(stopwords=None, lower=False)
    tokenizer.tokenize([text], show_progress=False)
    (spans,) = word_spans([text], 0)
    assert spans is not None
    assert sorted({text[start:stop] for start, stop in spans}) == sorted(
        set(tokenizer.get_vocab_dict()) - {""}
    )
    assert word_spans([text], len(spans)) == [None]


@given(
    st.text(alphabet="ab .?\nC", max_size=120),
    st.integers(1, 12),
    st.integers(0, 11),
    st.sampled_from(["sentence", "token"]),
)
def test_chunks_cover_all_tokens_in_order_within_their_limits(
    text: str, tokens: int, overlap: int, boundary: str
) -> None:
    overlap = min(overlap, tokens - 1)
    spans = words(text)
    settings = ChunkSettings(tokens=tokens, overlap=overlap, boundary=boundary)
    found = cut(text, spans, settings)
    held = [[n for n, (a, b) in enumerate(spans) if start <= a and b <= stop] for start, stop in found]
    assert set(itertools.chain(*held)) == set(range(len(spans)))
    if len(spans) <= tokens:
        assert found == [(0, len(text))]
        return
    assert all(0 < len(each) <= tokens for each in held)
    for before, after in itertools.pairwise(held):
        assert before[0] < after[0]
        assert before[-1] < after[-1]
        assert len({*before} & {*after}) <= overlap


def test_the_tokens_of_a_model_are_found_in_its_text(minilm_folder: Path) -> None:
    from tokenizers import Tokenizer

    from pipeline.config import BACKENDS
    from pipeline.encoders import resolve
    from pipeline.models import token_spans

    tokenizer = Tokenizer.from_file(str(minilm_folder / "tokenizer.json"))
    tokenizer.no_padding()
    text = "Unbelievable   Größe, 東京. Then more words follow here. " * 30
    model = resolve(BACKENDS.make(backend="flag", name="all-minilm-l6-v2")).model
    (whole, short) = token_spans(model.tokenizer)([text, "two words"], 5)
    assert short is None
    assert whole is not None
    settings = ChunkSettings(tokens=20, overlap=5)
    for start, stop in cut(text, whole, settings):
        part = text[start:stop]
        assert part == part.strip() or stop == len(text)
        assert len(tokenizer.encode(part, add_special_tokens=False).ids) <= 20


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_no_chunk_has_too_many_tokens_when_it_is_read_by_itself(kind: str) -> None:
    """A part of a word, or a word without the space before it, may have more tokens than within its text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=350, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=100, unk_token="?", special_tokens=["?"])
    text = "Unbelievably, believers were relieved; unreliable levers rely on believable liars. " * 8
    tokenizer.train_from_iterator([text], trainer)
    text += "東"

    def spans(texts: list[str], most: int) -> list[list[tuple[int, int]] | None]:
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        return [each.offsets if len(each) > most else None for each in encodings]

    too_long = 0
    for most in range(3, 12):
        settings = ChunkSettings(tokens=most, overlap=most // 3)
        (tokens,) = spans([text], most)
        parts = [text[start:stop] for start, stop in cut(text, tokens, settings)]
        too_long += sum(each is not None for each in spans(parts, most))
        (chunks,) = cut_texts([text], spans, settings)
        assert spans([text[start:stop] for start, stop in chunks], most) == [None] * len(chunks)
        held = set(itertools.chain.from_iterable(range(*chunk) for chunk in chunks))
        assert all(text[place].isspace() for place in set(range(len(text))) - held)
        assert cut_texts([text], spans, settings, first_only=True) == [chunks[:1]]
    assert too_long > 0
    if kind == "bytes":
        with pytest.raises(InputError, match="the character '東' alone has 3 tokens"):
            cut_texts([text], spans, ChunkSettings(tokens=2, overlap=0))
