"""Suites: several collections under one name, in a config or in a file of the package.

A file of `pipeline/suites/` lists the collections of a published suite: where each one's data is, and what
the suite says of it. `data.suite` names such a file, or one of the user's own; `data.collections` lists
collections in the config itself.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ValidationError
from typing_extensions import override

from pipeline.config.data import SOURCES, DataSettings
from pipeline.config.mistakes import explain, read_yaml
from pipeline.config.settings import FOLDER, Kinds, PathOrId, PlainName, Section, setting
from pipeline.config.stages import ExpectedScore
from pipeline.core.errors import InputError, did_you_mean

SUITES = Path(__file__).parents[1] / "suites"
"""The folder of the files that come with the package."""
SHARED = tuple(name for name in DataSettings.model_fields if name != "source")
"""Settings of a suite's section that hold for each collection that does not set them itself."""


class MtebTask(Section):
    """What MTEB calls a collection, for results in its format."""

    task: str = setting(..., "the task's name", shapes="")
    split: str | None = setting(None, "the split's name there; null is that of the data", shapes="")
    subset: str | None = setting(None, "the subset's name there; null is that of the data", shapes="")
    languages: tuple[str, ...] = setting(
        ..., "language and script, such as eng-Latn", shapes="", strict=False
    )


class SuiteCollection(Section):
    """A collection of a suite, and what the suite says of it."""

    data: Annotated[DataSettings, SOURCES] = setting(..., "the collection", shapes="")
    query_instruction: str | None = setting(None, "`{task}` in model.query_instruction", shapes="")
    passage_instruction: str | None = setting(None, "likewise of passages", shapes="")
    main_measure: str | None = setting(
        None, "the measure that it is judged by; null is that of the suite", shapes=""
    )
    group: PlainName | None = setting(
        None, "collections of a group count as one: their mean is taken first", shapes=""
    )
    passages: int | None = setting(None, "number of passages", shapes="", ge=1)
    queries: int | None = setting(None, "number of judged queries", shapes="", ge=1)
    license: str | None = setting(None, "of the collection; null is that of the suite", shapes="")
    mteb: MtebTask | None = setting(None, "the task of MTEB that it is", shapes="")
    expected: tuple[ExpectedScore, ...] = setting(
        (), "published scores of the model that is run", shapes="", strict=False
    )

    def is_read_by(self, data: Mapping[str, object]) -> bool:
        """Whether a config's section `data` names this collection, of whatever revision."""
        if data.get("path") != getattr(self.data, "path", None):
            return False  # without the time that a dump takes
        named = self.data.model_dump(exclude_unset=True, exclude={"revision", "ignored"})
        return data.get("subset") == named.get("subset") and named.items() <= data.items()


class Suite(Section):
    """A list of collections."""

    description: str = setting("", "what the suite is", shapes="")
    license: str | None = setting(None, "of the collections", shapes="")
    main_measure: str | None = setting(None, "the measure that collections are judged by", shapes="")
    collections: dict[PlainName, SuiteCollection] = setting(..., "by name", shapes="", min_length=1)

    def measure_of(self, name: str) -> str | None:
        """The main measure of a collection."""
        return self.collections[name].main_measure or self.main_measure

    def license_of(self, name: str) -> str | None:
        """The license of a collection."""
        return self.collections[name].license or self.license

    @property
    def counted_as(self) -> int:
        """How many numbers the suite's mean is taken over: a group counts once."""
        return len({each.group or f"alone: {name}" for name, each in self.collections.items()})

    def total(self, part: Literal["passages", "queries"]) -> int:
        """The number of passages or queries of all collections, as far as they are known."""
        return sum(getattr(each, part) or 0 for each in self.collections.values())


def suite_names() -> list[str]:
    """The names of the suites that come with the package."""
    return sorted(path.stem for path in SUITES.glob("*.yaml"))


@functools.cache
def read_suite(name: str) -> Suite:
    """A suite of the package by its name, or the file at a path.

    Raises:
        InputError: There is no such suite, or the file is not one.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else SUITES / f"{name}.yaml"
    if path.parent == SUITES and not path.is_file():
        raise InputError(
            f"no suite '{name}'",
            allowed=", ".join([*suite_names(), "the path of a file such as ./suite.yaml"]),
            fix=did_you_mean(name, suite_names(), "name one of them"),
        )
    raw = read_yaml(path, "suite", Suite, "those of benchmarco suites")
    try:
        return Suite.model_validate(raw, context={FOLDER: path.resolve().parent})
    except ValidationError as error:
        raise explain(error, f"suite {path}", Suite, raw) from None


class ManySettings(DataSettings):
    """Several collections; what is set beside them holds for each that does not set it itself."""

    @property
    def suite_of_collections(self) -> Suite:
        """The collections, as they are listed."""
        raise NotImplementedError

    @property
    def members(self) -> Mapping[str, DataSettings]:
        """The data section of each collection, by name."""
        shared = {name: getattr(self, name) for name in SHARED if name in self.model_fields_set}
        return {
            name: each.data.model_copy(
                update={key: value for key, value in shared.items() if key not in each.data.model_fields_set}
            )
            for name, each in self.suite_of_collections.collections.items()
        }


class CollectionsSettings(ManySettings):
    """Several collections, listed here."""

    source: Literal["collections"] = DataSettings.narrowed("source", "collections")
    collections: dict[PlainName, Annotated[DataSettings, SOURCES]] = setting(
        ..., "a section `data` per collection, by name", shapes="", min_length=1
    )

    @property
    @override
    def suite_of_collections(self) -> Suite:
        return Suite(
            collections={name: SuiteCollection(data=each) for name, each in self.collections.items()}
        )


class SuiteSettings(ManySettings):
    """A suite: several collections, listed in a file."""

    source: Literal["suite"] = DataSettings.narrowed("source", "suite")
    suite: PathOrId = setting(..., "name of a built-in suite, or path of a suite file", shapes="")

    @property
    @override
    def suite_of_collections(self) -> Suite:
        return read_suite(self.suite)


DATA = Kinds(
    DataSettings,
    "source",
    {"collections": CollectionsSettings, "suite": SuiteSettings},
    besides=SOURCES,
    implied=("collections", "suite"),
)
"""What the section `data` may be: the source of one collection, or several collections."""
