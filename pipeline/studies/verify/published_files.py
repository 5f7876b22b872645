"""Files of published scores, and which of them are of a model and a collection.

read_published(Path("SciFact.json"))   # of MTEB; or a README, a YAML file of Pyserini or Anserini, a CSV file
"""

from __future__ import annotations

import csv
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.mistakes import parse_yaml
from pipeline.config.stages import ExpectedScore
from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.formats.tables import columns_shown
from pipeline.metrics.definitions import parse_measure

MTEB_PLACES = 5  # MTEB rounds to these, and JSON drops the zeros at their end
COLUMNS = ("model", "collection", "measure", "value")
FORMS = (
    "a result file of MTEB (.json), a README with model-index (.md), a file of expected scores of Pyserini "
    f"or Anserini (.yaml), or a CSV file with the columns {', '.join(COLUMNS)}"
)
SIMILARITIES = re.compile(r"^(cosine|cos_sim|dot|dot_score|euclidean|manhattan)_(?=[a-z])")
"""What sentence-transformers puts before the names of measures."""


@dataclass(frozen=True)
class PublishedScore:
    """A published score."""

    model: str  # model, collection, split: as the file names them; "" where it does not
    collection: str
    split: str
    score: ExpectedScore  # of a measure as results name it


def score(measure: str, text: str, source: str, percent: bool = False) -> ExpectedScore:
    """A score from the digits it is published with; those of a percentage count two places more."""
    try:
        number = Decimal(text)
        places = max(-int(number.as_tuple().exponent), 0) + (2 if percent else 0)
    except (ArithmeticError, ValueError):
        raise ValueError(f"{measure} is {text!r}, which is no number") from None
    value = float(number / 100 if percent else number)
    highest = parse_measure(measure).definition.highest
    if not 0 <= value <= highest:
        raise ValueError(f"{measure} is {text}, and its range is 0 to {highest:g}: give fractions")
    return ExpectedScore(measure=measure, value=value, source=source, digits=min(places, 17))


def read_published(path: Path) -> list[PublishedScore]:
    """The scores in a file.

    Raises:
        InputError: The file has none, or not the form that its name says.
    """
    readers: dict[str, Callable[[Path, str], Iterator[PublishedScore]]] = {
        ".json": _mteb, ".md": _model_index, ".yaml": _yaml, ".yml": _yaml, ".csv": _csv,
    }  # fmt: skip
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: unknown form of published scores", allowed=FORMS)
    if not path.is_file():  # a pipe would wait for a writer
        raise InputError(f"{path}: no such file", allowed=FORMS)
    try:
        found = list(reader(path, path.read_text(encoding="utf-8-sig")))
    except (
        ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, yaml.YAMLError,
    ) as error:  # fmt: skip
        if isinstance(error, InputError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        fix = "convert it to UTF-8" if isinstance(error, UnicodeError) else ""
        what = f"{path}: not readable as published scores ({reason})"
        raise InputError(what, allowed=FORMS, fix=fix) from None
    if not found:
        raise InputError(f"{path}: has no score of a measure of retrieval", allowed=FORMS)
    if reader is _csv:  # which has digits as they were written
        return found
    # numbers of JSON and YAML lose the zeros at their end: 1 may have been published as 1.00000
    least = MTEB_PLACES if reader is _mteb else max(each.score.digits or 0 for each in found)
    digits = [max(each.score.digits or 0, least) for each in found]
    return [
        replace(each, score=each.score.model_copy(update={"digits": places}))
        for each, places in zip(found, digits, strict=True)
    ]


@functools.cache
def known_measure(name: str) -> str | None:
    """The name here of a measure as MTEB or sentence-transformers writes it; None for other values."""
    lowered = SIMILARITIES.sub("", name.strip().lower())
    match = re.fullmatch(r"([a-z_]+?)(?:_at_|@)(\d+)(k?)", lowered)
    if match is None:
        return None
    cutoff = int(match[2]) * (1000 if match[3] else 1)
    return _parsed(f"{match[1]}@{cutoff}")


def _parsed(name: str) -> str | None:
    """The name of a measure as results have it; None for what is none."""
    try:
        return str(parse_measure(name))
    except InputError:
        return None


def _mteb(path: Path, text: str) -> Iterator[PublishedScore]:
    """A task of MTEB. Its nDCG, MAP, recall and precision are pytrec_eval's, rounded to 5 places."""
    content = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    folder = path.parts[-3] if len(path.parts) > 2 else ""
    model = folder.replace("__", "/") if "__" in folder else ""
    task = str(content.get("task_name") or content.get("mteb_dataset_name") or "")
    source = f"MTEB {content.get('mteb_version') or ''}".rstrip()
    for split, subset, entry in mteb_entries(content):
        name = task if subset == "default" else f"{task}/{subset}"
        for key, value in entry.items():
            measure = known_measure(key)
            if measure and isinstance(value, Decimal):
                yield PublishedScore(model, name, split, score(measure, str(value), source))


def mteb_entries(content: Facts) -> Iterator[tuple[str, str, Facts]]:
    """Split, subset, and what stands there of measures and else, of MTEB's layout and that before 1.11."""
    splits = content.get("scores")
    if not isinstance(splits, dict):
        splits = {name: _old_subsets(value) for name, value in content.items()}
    for split, subsets in splits.items():
        for entry in subsets if isinstance(subsets, list) else ():
            if isinstance(entry, dict):
                yield split, str(entry.get("hf_subset") or "default"), entry


def _old_subsets(split: object) -> list[Facts]:
    """The subsets of a split in the earlier layout: one whose measures stand in it, or several by name."""
    if not isinstance(split, dict) or any(known_measure(name) for name in split):
        return [split] if isinstance(split, dict) else []
    return [{**value, "hf_subset": name} for name, value in split.items() if isinstance(value, dict)]


def _model_index(path: Path, text: str) -> Iterator[PublishedScore]:
    """The metadata at the head of a model card; values above 1 make all of a result percentages."""
    parts = re.split(r"^---\s*$", text, maxsplit=2, flags=re.MULTILINE)
    head = parse_yaml(parts[1], str(path), yaml.BaseLoader) if len(parts) == 3 else {}
    for index in head.get("model-index", ()):
        for result in index["results"]:
            data = result["dataset"]
            name, split = str(data.get("name") or data.get("type")), str(data.get("split") or "")
            name = re.sub(r"^MTEB |\s*\(.*\)$", "", name)
            named = [(known_measure(str(each["type"])), str(each["value"])) for each in result["metrics"]]
            of_retrieval = [(measure, value) for measure, value in named if measure]
            percent = any(Decimal(value) > 1 for _, value in of_retrieval)
            for measure, value in of_retrieval:
                yield PublishedScore(
                    str(index["name"]), name, split, score(measure, value, path.name, percent)
                )


def _yaml(path: Path, text: str) -> Iterator[PublishedScore]:
    """Pyserini's; or a regression of Anserini: `metrics` says how trec_eval is called for each measure."""
    content = parse_yaml(text, str(path), yaml.BaseLoader)
    if "conditions" in content:
        yield from _pyserini(path, content)
        return
    measures = {each["metric"]: _trec_eval(each["params"]) for each in content["metrics"]}
    topics = [str(each.get("id") or each["name"]) for each in content["topics"]]
    for model in content["models"]:
        for metric, values in model["results"].items():
            for topic, value in zip(topics, values, strict=True):
                if measure := measures.get(metric):
                    yield PublishedScore(str(model["name"]), topic, "", score(measure, value, path.name))


def _trec_eval(params: str) -> str | None:
    """The measure that trec_eval computes with such arguments; None for one that is unknown here."""
    options = dict(re.findall(r"-([mMl])\s+(\S+)", params))
    name, _, cutoff = options.get("m", "").partition(".")
    cutoff = options.get("M", cutoff.split(",")[0])
    relevant = f"(rel={options['l']})" if options.get("l", "1") != "1" else ""
    return _parsed(f"{name}{relevant}" + (f"@{cutoff}" if cutoff else ""))


def _pyserini(path: Path, content: Mapping[str, Any]) -> Iterator[PublishedScore]:
    """A two-click reproduction of Pyserini: conditions, with scores by topics or by datasets.

    In TREC's Deep Learning tracks of passages, AP and recall count grades from 2 (`-l 2`).
    """
    for condition in content["conditions"]:
        for entry in condition.get("topics") or condition.get("datasets") or ():
            name = str(entry.get("eval_key") or entry.get("topic_key") or entry["dataset"])
            graded = bool(re.match(r"dl(19|2\d)-passage", name))
            for scores in entry["scores"]:
                for metric, value in scores.items():
                    found = known_measure(metric) or _parsed(metric)
                    if found and graded and parse_measure(found).name in ("map", "recall"):
                        found = str(replace(parse_measure(found), params=(("rel", 2),)))
                    if found:
                        yield PublishedScore(str(condition["name"]), name, "", score(found, value, path.name))


def _csv(path: Path, text: str) -> Iterator[PublishedScore]:
    """Lines with `COLUMNS`, and perhaps source, split, tolerance and digits."""
    rows = csv.DictReader(text.splitlines())
    absent = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if absent:
        raise InputError(
            f"{path}: no column {', '.join(absent)}; it has {columns_shown(rows.fieldnames or ())}",
            allowed=f"the columns {', '.join(COLUMNS)}",
        )
    for row in rows:
        published = score(str(parse_measure(row["measure"])), row["value"], row.get("source") or path.name)
        values = published.model_dump()
        values |= {"tolerance": float(row["tolerance"])} if row.get("tolerance") else {}
        values |= {"digits": int(row["digits"])} if row.get("digits") else {}
        checked = ExpectedScore.model_validate(values)
        yield PublishedScore(row["model"], row["collection"], row.get("split") or "", checked)


def normalize_name(name: str) -> str:
    """A name without owner, folders, case and punctuation, by which names of files are matched."""
    return re.sub(r"[^a-z0-9]", "", name.rstrip("/").rpartition("/")[2].lower())


def select_scores(
    published: Sequence[PublishedScore],
    models: Sequence[str],
    collections: Sequence[str],
    split: str = "",
    in_suite: bool = False,
) -> list[PublishedScore]:
    """The scores of a model, a collection and a split; models and collections are known by several names.

    Where a file names one model, or one collection, it is taken whatever its name: the user chose the file.
    Of a collection in a suite the name decides, as one collection's scores are not those of the others.
    Scores of other splits are left out where there are some of this one.
    """
    for attribute, names in (("model", models), ("collection", collections), ("split", [split])):
        by_name = in_suite and attribute == "collection"
        if by_name or len({getattr(each, attribute) for each in published}) > 1:
            wanted = {normalize_name(name) for name in names if name}
            matching = [each for each in published if normalize_name(getattr(each, attribute)) in wanted]
            published = matching if matching or attribute != "split" else published
    return list(published)
