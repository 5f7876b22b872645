"""The suites that come with the package: where their files are, and what they hold, as plain values.

`pipeline.config.suites` checks such a file and makes settings of it, which takes pydantic and every source.
What is here reads all files in a tenth of that time, to list them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUITES = Path(__file__).parents[1] / "suites"
"""The folder of the files."""


@dataclass(frozen=True)
class ListedCollection:
    """What a suite's file says of a collection.

    Attributes:
        path: Repository on the hub.
        revision: The commit that is read; None is the newest.
        group: Collections of one group count as one.
        passages, queries: How many there are; None where it is not known.
        data: Its section `data`.
        mteb: What MTEB calls it: `task`, `languages`, perhaps `split` and `subset`; None if it is no task
            of MTEB.
    """

    name: str
    source: str
    path: str
    revision: str | None
    main_measure: str
    license: str
    group: str | None
    passages: int | None
    queries: int | None
    query_instruction: str | None
    data: dict[str, Any]
    mteb: dict[str, Any] | None

    def is_read_by(self, data: Mapping[str, Any]) -> bool:
        """Whether a config's section `data` names this collection, of whatever revision."""
        named = {name: value for name, value in self.data.items() if name not in ("revision", "ignored")}
        return data.get("subset") == named.get("subset") and named.items() <= data.items()


@dataclass(frozen=True)
class ListedSuite:
    """What a suite's file says of the suite."""

    name: str
    description: str
    license: str
    main_measure: str
    collections: Sequence[ListedCollection]

    @property
    def counted_as(self) -> int:
        """How many numbers the suite's mean is taken over: a group counts once."""
        return len({each.group or f"alone: {each.name}" for each in self.collections})

    def total(self, part: str) -> int:
        """The sum of `passages` or `queries`, as far as they are known."""
        return sum(getattr(each, part) or 0 for each in self.collections)


def suite_names() -> list[str]:
    """The names of the suites that come with the package."""
    return sorted(path.stem for path in SUITES.glob("*.yaml"))


def list_suite(name: str) -> ListedSuite:
    """The content of a suite's file."""
    import yaml

    text = (SUITES / f"{name}.yaml").read_text(encoding="utf-8")
    read: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    shared = {"main_measure": read["main_measure"], "license": read["license"]}
    collections = []
    for collection, given in read["collections"].items():
        data, values = given["data"], shared | given
        collections.append(
            ListedCollection(
                name=collection,
                source=data["source"],
                path=data["path"],
                revision=data.get("revision"),
                main_measure=values["main_measure"],
                license=values["license"],
                group=given.get("group"),
                passages=given.get("passages"),
                queries=given.get("queries"),
                query_instruction=given.get("query_instruction"),
                data=data,
                mteb=given.get("mteb"),
            )
        )
    return ListedSuite(name, read["description"], read["license"], read["main_measure"], collections)
