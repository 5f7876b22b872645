"""Result files, ours or MTEB's, whose values contradict each other.

lint_files([Path("results")]).tables()
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import NamedTuple

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Facts, JsonObject
from pipeline.core.result_files import CHECKSUMS, MANIFEST, METRICS, SUITE
from pipeline.core.table import Column, Table, Tabular, right, table_of
from pipeline.results.exchange import META
from pipeline.studies.verify.contradictions import Contradiction, Scores, contradictions, point_of
from pipeline.studies.verify.published_files import MTEB_PLACES, MtebFile, known_measure

OUR_PLACES = 9
TIES = "tied documents: before mteb 2.18.19 MRR and capped recall left them in order of insertion"


class ScorePlace(NamedTuple):
    """Where scores are; empty where the file does not say."""

    file: str
    model: str = ""
    task: str = ""
    split: str = ""
    subset: str = ""


@dataclass(frozen=True, repr=False)
class Lint(Tabular):
    """How many files and sets of scores were checked and how many files have none; the contradictions."""

    files: int
    scores: int
    skipped: int
    found: list[tuple[ScorePlace, Contradiction]]

    def json(self) -> JsonObject:
        """The document that `verify --lint --json` prints."""
        rows = [place._asdict() | contradiction._asdict() for place, contradiction in self.found]
        counts = {"files": self.files, "scores": self.scores, "skipped": self.skipped}
        return {**counts, "counts": self._counts(), "contradictions": rows}

    def _counts(self) -> list[Facts]:
        """How often each identity is broken, by causes, the most frequent first; with an example."""
        groups: defaultdict[tuple[str, str], list[tuple[ScorePlace, str]]] = defaultdict(list)
        for place, found in self.found:
            groups[found.identity, found.cause].append((place, found.values))
        return [
            {
                "identity": identity, "cause": cause, "scores": len({place for place, _ in rows}),
                "files": len({place.file for place, _ in rows}),
                "models": len({place.model for place, _ in rows}),
                "example": f"{rows[0][0].file}: {rows[0][1]}",
            }
            for (identity, cause), rows in sorted(groups.items(), key=lambda group: -len(group[1]))
        ]  # fmt: skip

    def tables(self) -> list[Table]:
        """Contradictions by identity and cause."""
        checked = f"{counted(self.files, 'file')}, {counted(self.scores, 'set')} of scores"
        notes = [f"{self.skipped:,} JSON files without measures of retrieval."] if self.skipped else []
        if not self.found:
            title = f"No contradiction in {checked}: they agree with the definitions of their measures."
            return [Table(title, [], [], notes)]
        counts = self._counts()
        columns = [
            (right(name, form=",") if isinstance(first, int) else Column(name), [row[name] for row in counts])
            for name, first in counts[0].items()
        ]
        return [table_of(f"{checked}: {counted(len(self.found), 'contradiction')}", columns, notes)]


def lint_files(paths: Sequence[Path]) -> Lint:
    """Check files, and all files of folders.

    Raises:
        InputError: A path does not exist, or a file that is named has no measures.
    """
    if missing := [path for path in paths if not path.exists()]:
        raise InputError(f"{missing[0]}: no such file", allowed="files and folders", fix="check the path")
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.json")))]
    evaluations: list[tuple[ScorePlace, Scores, str]] = []
    skipped = 0
    for path in dict.fromkeys(files):
        of_file = [each for each in _evaluations(path) if any(k for _, k in each[1])]
        if path in paths and not of_file:
            raise InputError(
                f"{path}: no measures of retrieval in it",
                allowed="a result folder, its metrics.json, or a result file of MTEB",
                fix="check the path",
            )
        skipped += not of_file and path.name not in (MANIFEST, META, SUITE, CHECKSUMS)
        evaluations += of_file
    found = [(place, each) for place, scores, cause in evaluations for each in contradictions(scores, cause)]
    return Lint(len({place.file for place, *_ in evaluations}), len(evaluations), skipped, found)


def _evaluations(path: Path) -> Iterator[tuple[ScorePlace, Scores, str]]:
    """The sets of scores of a file, and what may explain that they contradict themselves."""
    if path.name in (MANIFEST, META, CHECKSUMS):
        return
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    content = content if isinstance(content, dict) else {}
    if path.name in (METRICS, SUITE):
        yield (
            ScorePlace(str(path), str(content.get("name"))),
            _scores(content.get("metrics") or {}, OUR_PLACES),
            "",
        )
        return
    file = MtebFile(path, content)
    version = tuple(map(int, re.findall(r"\d+", file.version)[:3]))
    for split, subset, entry in file.entries():
        place = ScorePlace(str(path), file.folder, file.task, split, subset)
        yield place, _scores(entry, MTEB_PLACES), TIES if version < (2, 18, 19) else ""


def _scores(entry: Facts, most_places: int) -> Scores:
    """The numbers of an object. Some files hold percents of two digits; MRR is not rounded."""
    points = {}
    for name, value in entry.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        at = point_of((known_measure(name) or name) if "_at_" in name else name)
        if number or at[1]:
            points[at] = value if number else nan
    texts = [repr(value).partition(".")[2] for (name, k), value in points.items() if k and name != "mrr"]
    places = min(max([2, *map(len, texts)]) if texts else most_places, most_places)
    return {at: (value, 0.5 * 10.0**-places) for at, value in points.items()}
