"""Questions over a chat server: which answers are questions, which are kept, and what is asked again."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from embedding_server import EmbeddingServer
from workplaces import benchmarco, document, on_one_line

from pipeline.studies.questions import longest_copy, read_question

PASSAGES = {
    "coffee": "Roasted coffee is at its most aromatic for roughly the first month after roasting.",
    "copied": "The flask keeps water hot for twelve hours and cold for twenty four.",
    "vague": "It depends on many things, as those who tried it say.",
    "refused": "A text about something that a model does not like to read.",
    "tea": "Green tea turns bitter if the water is hotter than eighty degrees.",
    "empty": "",
}
ANSWERS = {
    "coffee": '```json\n{"question": "How long does coffee stay fresh?"}\n```',
    "copied": "What keeps water hot for twelve hours and cold?",
    "vague": "Question: What does it depend on?",
    "refused": "I'm sorry, but I can't help with that.",
    "tea": '"At which temperature should one brew green tea?"',
}


class Writer(EmbeddingServer):
    """A chat model that writes a question, and says whether a passage answers it."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.answers = dict(ANSWERS)
        self.fail: Callable[[str], bool] = lambda _: False

    def answer(self, handler: Any) -> Any:
        if self.is_faulty(handler):
            return None
        prompt = handler.body["messages"][0]["content"]
        passage = re.findall(r"={8}\n(.*?)\n={8}", prompt, re.DOTALL)[0]
        name = next(name for name, text in PASSAGES.items() if text == passage)
        if self.fail(name):
            return handler.send(400, {"error": {"message": "no"}})
        answer = ("No." if name == "vague" else "yes") if "Question: " in prompt else self.answers[name]
        with self.lock:
            self.answered[prompt] += 1
        choices = [{"index": 0, "message": {"role": "assistant", "content": answer}}]
        return handler.send(200, {"choices": choices, "usage": {"total_tokens": 20}})


@pytest.fixture
def server() -> Iterator[Writer]:
    writer = Writer()
    yield writer
    writer.close()


@pytest.fixture
def config(tmp_path: Path, server: Writer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config whose collection is passages alone."""
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"_id": name, "text": text}) + "\n" for name, text in PASSAGES.items()]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "corpus.jsonl").write_text("".join(lines), encoding="utf-8")
    judge = {"backend": "http", "url": server.url, "model": "qwen3-30b", "concurrency": 2}
    sections = {"data": {"source": "beir", "path": "mine"}, "model": {"backend": "bm25"}, "judge": judge}
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"name": "mine", **sections}), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        ("How hot is the sun?", "How hot is the sun?"),
        ("**Query:** How hot is the sun?", "How hot is the sun?"),
        ('{"query": "How hot is the sun?"}', "How hot is the sun?"),
        ("```\nHow hot is the sun?\n```", "How hot is the sun?"),
        ("太阳有多热？", "太阳有多热？"),
        ("", None),
        ("I cannot answer that.", None),
        ("Sure! Here is a question:\nHow hot is the sun?", None),
        ("Why?", None),
        ("x" * 400 + " is it long?", None),
        ('{"a": "How hot is it?", "b": "How cold is it?"}', None),
        ("[" * 100_000, None),
    ],
)
def test_a_question_is_read_strictly(answer: str, question: str | None) -> None:
    assert read_question(answer) == question


def test_the_longest_copy_is_a_run_of_words() -> None:
    assert longest_copy("Is THE red fox, quick?", "the red fox is quick") == 3
    assert longest_copy("", "a b") == 0


def test_questions_that_copy_or_are_not_answered_are_left_out_and_the_rest_is_a_collection(
    config: Path, tmp_path: Path
) -> None:
    written: Any = document("questions", config, "--number", 9, "--output", "made")
    assert written["questions"] == 2
    assert written["tried"] == written["passages"] == len(PASSAGES)
    assert written["rejected"] == {
        "copied from their passage": 1,
        "not answered by their passage": 1,
        "with no question in the answer": 1,
        "with a passage of no words": 1,
    }
    origins = (tmp_path / "made" / "questions.tsv").read_text(encoding="utf-8").splitlines()
    assert origins[0] == "query\twritten_by\tabout_passage"
    assert {tuple(line.split("\t")[1:]) for line in origins[1:]} == {
        ("qwen3-30b", "coffee"),
        ("qwen3-30b", "tea"),
    }
    ran = on_one_line(benchmarco("run", "--model", "bm25", "--data", "made"))
    assert "2 queries, 6 passages" in ran
    assert "ts questions were written by qwen3-30b: they order systems better than they measure them" in ran


def test_a_run_that_was_stopped_asks_nothing_twice(config: Path, server: Writer, tmp_path: Path) -> None:
    server.fail = lambda name: name == "tea"
    command = ["questions", config, "--number", 9, "--seed", 3, "--output", "made"]
    command += ["--set", "judge.concurrency=1"]  # what is under way is asked again
    benchmarco(*command, code=2)
    assert not (tmp_path / "made").exists()
    before = dict(server.answered)
    server.fail = lambda _: False
    assert "2 questions of 6 passages kept" in benchmarco(*command).stdout
    assert set(server.answered.values()) == {1}
    assert before.items() <= server.answered.items()


def test_what_cannot_be_asked_is_refused(config: Path, server: Writer, tmp_path: Path) -> None:
    assert (
        "--output mine: is not empty"
        in benchmarco("questions", config, "--number", 1, "--output", "mine", code=2).stderr
    )
    (tmp_path / "plain.yaml").write_text("name: t\ndata: {source: sample}\nmodel: {backend: bm25}\n")
    refused = benchmarco("questions", "plain.yaml", "--number", 1, "--output", "made", code=2)
    assert "no section 'judge'" in refused.stderr
    answers, server.answers = server.answers, dict.fromkeys(ANSWERS, "")
    refused = benchmarco("questions", config, "--number", 1, "--output", "made", code=2)
    assert "no question was kept of 6" in refused.stderr
    server.answers = answers  # what was no answer is asked again
    assert "2 questions" in benchmarco("questions", config, "--number", 2, "--output", "made").stdout
