"""Python files that a model runs and its folder does not hold: which of its settings name them.

A class is named as `module.Class` in `auto_map` of a configuration file, or as a module's `type` in
`modules.json`. The module is a file of the model's folder, also `sub/module`, unless the name of another
repository and `--` stand before it: `owner/name--module.Class`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.core import hub
from pipeline.core.errors import InputError


def named_classes(configs: Iterable[Mapping[str, Any]], modules: Iterable[Mapping[str, Any]]) -> list[str]:
    """The classes that configuration files and the entries of `modules.json` name, each once, sorted."""
    found = {str(module.get("type")) for module in modules if "--" in str(module.get("type"))}
    for config in configs:
        mapped = config.get("auto_map")
        found.update(_texts(list(mapped.values()) if isinstance(mapped, dict) else mapped))
    return sorted(found)


def _texts(value: Any) -> Iterator[str]:
    """The texts of a value: of a tokenizer's slow and fast class, one may be null."""
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str):
            yield each
        elif isinstance(each, list):
            yield from _texts(each)


def own_file(name: str) -> str | None:
    """The path, from the model's folder, of the file of a class; None if it is in another repository."""
    return None if "--" in name else name.rpartition(".")[0] + ".py"


def other_repositories(names: Iterable[str]) -> dict[str, str]:
    """The hub repositories that named classes come from, each with the commit that transformers loads.

    That is what the branch `main` names now.

    Raises:
        InputError: A class comes from another folder of this machine.
    """
    repositories = sorted({name.partition("--")[0] for name in names if "--" in name})
    for repository in repositories:
        if Path(repository).is_dir() or Path(repository).is_absolute():
            raise InputError(
                f"the model takes Python files from another folder, {repository}",
                allowed="files in the folder itself, or in a repository of the hub",
                fix="read them, copy them into the model's folder, and name them in auto_map without '--'",
            )
    return {repository: hub.resolve_commit(repository, None, "model") for repository in repositories}
