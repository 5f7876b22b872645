"""Dataset repositories, on the hub at one commit or in a local folder, and their files of a table and split.

As on the hub, `README.md` may list the files (`configs:` in its header). Otherwise they are found by name, as
`data/dev-00000-of-00002.parquet`, `dev/part.parquet` or `corpus/corpus.jsonl`. Files are read in order of
their names. A local folder is read in place; nothing is copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import yaml

from pipeline.core import hub
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments
from pipeline.formats.texts import Batch
from pipeline.storage.hashing import hash_file

README = "README.md"
PARQUET, JSON, TSV = (".parquet",), (".jsonl", ".jsonl.gz", ".json", ".json.gz"), (".tsv", ".tsv.gz")
KINDS = PARQUET + JSON + TSV  # of a split that exists in several, the first is read


@dataclass(frozen=True)
class Repo:
    """A dataset repository."""

    name: str  # its id on the hub, or its folder
    commit: str | None  # None for a local folder

    @staticmethod
    def open(path: str, revision: str | None) -> Repo:
        """The repository of a folder, named by its absolute path, or else of an id on the hub."""
        local = Path(path).is_absolute() and Path(path).is_dir()
        return Repo(path, None if local else hub.resolve_commit(path, revision, "dataset"))

    def identity(self, config: str | None, split: str | None) -> JsonObject:
        """The commit, or the hashes of local files, which determine the rows of a split."""
        if self.commit is None:
            return {"layout": "hub", "sha256": [*map(hash_file, self.files(config, split))]}
        source = {"layout": "hub", "dataset": self.name, "commit": self.commit}
        return source | {"config": config, "split": split}

    def files(self, config: str | None, split: str | None) -> list[Path]:
        """The files of a table and a split, fetched if need be; None is the default table, the only split."""
        listed = self._patterns_in_readme(config, split)
        folder = self._folder(_likely(config, split) if listed is None else listed)
        if listed is None:
            found = set(_named(folder, config, split))
        else:
            found = {path for pattern in listed for path in folder.glob(pattern)}
        for kind in KINDS:
            if files := sorted(path for path in found if path.name.endswith(kind)):
                return files
        kind = f"a table '{config}'" if config else "a split"
        present = sorted(str(path.relative_to(folder)) for path in _data_files(folder))[:8]
        raise InputError(
            f"dataset {self.name}: no file of {kind}{f' named {split!r}' if split else ''}"
            + (f"; it has {', '.join(present)}" if present else ""),
            allowed=f"files such as {config or 'data'}/{split or config}-00000-of-00001.parquet, "
            "plain or .gz, or .jsonl, .json or .tsv",
            fix="check data.path and data.split",
        )

    def has(self, config: str) -> bool:
        """Whether the repository has a table of that name; on the hub, by its README only."""
        if config in self._configs:
            return True
        return self.commit is None and not self._configs and bool(_named(Path(self.name), config, None))

    def splits(self, config: str) -> list[str]:
        """The splits of a table in the README."""
        return list(self._configs.get(config, {}))

    def _folder(self, patterns: Sequence[str]) -> Path:
        if self.commit is None:
            return Path(self.name)
        return hub.snapshot(self.name, self.commit, "dataset", patterns)

    @cached_property
    def _configs(self) -> dict[str, dict[str, list[str]]]:
        """The files listed in the README: table -> split -> patterns.

        The first table is what `datasets` reads by default: the one marked or named as default, or the first.
        """
        readme = self._folder([README]) / README
        text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
        header = re.match(r"---\s*\n(.*?)\n---", text, re.DOTALL)
        try:
            metadata = yaml.safe_load(header[1]) if header else None
        except (yaml.YAMLError, RecursionError):
            metadata = None
        listed = metadata.get("configs") if isinstance(metadata, dict) else None
        entries = [
            (str(entry.get("config_name", "default")), entry)
            for entry in (listed if isinstance(listed, list) else [])
            if isinstance(entry, dict) and entry.get("data_files")
        ]
        entries.sort(key=lambda each: each[0] != "default" and not each[1].get("default"))
        return {name: _splits(entry["data_files"]) for name, entry in entries}

    def _patterns_in_readme(self, config: str | None, split: str | None) -> list[str] | None:
        """The README's patterns for a split; None if the README names no tables."""
        if not self._configs:
            return None
        name = config or next(iter(self._configs))
        splits = self._configs.get(name, {})
        if split is None and len(splits) == 1:
            return next(iter(splits.values()))
        if split not in splits:
            known = "; ".join(f"{table}: {', '.join(parts)}" for table, parts in self._configs.items())
            wanted = f"split '{split}' of table '{name}'" if split else f"table '{name}' with one split"
            found = f"dataset {self.name}: its README names no {wanted}"
            raise InputError(found, allowed=known, fix="check data.split")
        return splits[split]


@dataclass(frozen=True)
class RepoPart:
    """The corpus, the queries or the judgments of a collection in a repository."""

    repo: Repo
    table: str | None  # None is the default table
    split: str | None  # None is the only split
    marks: Mapping[str, str | bool] = field(default_factory=dict)  # what else determines what is read

    def identity(self) -> JsonObject:
        """The commit, or the bytes of local files, and what is read of them."""
        return {**self.repo.identity(self.table, self.split), **self.marks}

    def paths(self) -> list[Path]:
        """Its files, fetched if need be."""
        return self.repo.files(self.table, self.split)

    def size(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.paths())

    def rows(self, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tables.TableRows]:
        """The rows of its files."""
        return tables.read_rows(self.paths(), columns, optional)


@dataclass(frozen=True)
class RepoSource:
    """A collection in one or several repositories, and how its parts are read."""

    corpus_part: RepoPart
    queries_part: RepoPart
    qrels_part: RepoPart | None  # None if the judgments are made of the two others
    read_corpus: Callable[[RepoPart], Iterator[Batch]]
    read_queries: Callable[[RepoPart], Iterator[Batch]]
    judge: Callable[[RepoSource], Judgments]

    @property
    def qrels(self) -> RepoPart:
        """The part with the judgments."""
        assert self.qrels_part is not None
        return self.qrels_part

    def identity(self) -> dict[str, JsonObject]:
        """The commits, or the bytes of local files."""
        corpus, queries = self.corpus_part.identity(), self.queries_part.identity()
        both: JsonObject = {"questions": queries, "passages": corpus}
        qrels = self.qrels_part.identity() if self.qrels_part else both
        return {"corpus": corpus, "queries": queries, "qrels": qrels}

    @property
    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus' files."""
        return self.corpus_part.size(), "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus."""
        return self.read_corpus(self.corpus_part)

    def queries(self) -> Iterator[Batch]:
        """The queries of the split."""
        return self.read_queries(self.queries_part)

    def judgments(self) -> Judgments:
        """The judgments of the split."""
        return self.judge(self)


def _splits(data_files: object) -> dict[str, list[str]]:
    """A README's `data_files`, which have several forms, as split -> patterns."""
    if isinstance(data_files, dict):
        return {str(split): _patterns(paths) for split, paths in data_files.items()}
    entries = data_files if isinstance(data_files, list) else [data_files]
    named = [entry for entry in entries if isinstance(entry, dict)]
    if len(named) == len(entries):
        return {str(entry.get("split", "train")): _patterns(entry.get("path")) for entry in named}
    return {"train": _patterns(entries)}


def _patterns(paths: object) -> list[str]:
    """One or several patterns as a list, without those that point outside the repository."""
    listed = paths if isinstance(paths, list) else [paths]
    texts = (path.removeprefix("./") for path in listed if isinstance(path, str))
    return [path for path in texts if path and not path.startswith("/") and ".." not in path.split("/")]


def _likely(config: str | None, split: str | None) -> list[str]:
    """Hub patterns that match at least the files of a split, for a README without a list of files."""
    if config:
        return [f"{config}/*", f"{config}.*", f"{config}-*", f"{config}_*"]
    return [f"*{split}*"] if split else ["*"]


def _data_files(folder: Path) -> list[Path]:
    """The files of a known format, without those with a hidden folder in their path."""
    files = (path for path in folder.rglob("*") if path.name.endswith(KINDS) and path.is_file())
    return [path for path in files if "/." not in f"/{path.relative_to(folder).as_posix()}"]


def _named(folder: Path, config: str | None, split: str | None) -> list[Path]:
    """The files whose names contain the table and the split."""
    files = _data_files(folder)
    if config:
        begins = re.compile(re.escape(config) + r"[/._-]")
        files = [path for path in files if begins.match(path.relative_to(folder).as_posix())]
    if split is None:
        return files
    word = re.compile(rf"(^|[/._-]){re.escape(split)}([/._-]|$)")
    by_name = [path for path in files if word.search(path.name)]
    return by_name or [path for path in files if word.search(path.relative_to(folder).as_posix())]
