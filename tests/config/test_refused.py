"""Settings that do not fit, in configs of several retrievers, collections or benchmarks: refused.txt."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import InputError, load_configs

MODEL = "model: {backend: flag, name: all-minilm-l6-v2}\n"
BASES = {
    "composed": (
        "data: {source: sample}\nfuse: {of: [{model: {backend: bm25}}, {model: {name: all-minilm-l6-v2}}]}\n"
        "rerank: {backend: sentence-transformers, name: owner/model}\n"
    ),
    "suite": f"data: {{queries: 5, collections: {{small: {{source: sample}}}}}}\n{MODEL}output: there\n",
    "sweep": f"data: {{source: sample}}\n{MODEL}",
}


def listed() -> Iterator[list[str]]:
    base = ""
    for line in Path(__file__).with_name("refused.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("$ "):
            base = line[2:]
        elif line and not line.startswith("#"):
            yield [base, *line.split(" | ")]


@pytest.mark.parametrize(("base", "settings", "message"), list(listed()))
def test_a_mistake_is_named_where_it_is(tmp_path: Path, base: str, settings: str, message: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"name: t\n{BASES[base]}", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_configs(path, settings.split("; "))
