"""All access to the Hugging Face Hub: the commit that a revision names, and a commit's files."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pipeline.core.errors import PATHS_START, InputError, causes
from pipeline.core.installation import ask_hub

Kind = Literal["model", "dataset"]
_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_DISK = {
    errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.ENOTDIR,
    errno.EPERM, errno.EROFS,
}  # fmt: skip
"""Error numbers of the disk that holds the hub cache; no network error has one of them."""
_NETWORK_PACKAGES = ("httpx", "httpcore", "requests", "urllib3")


_NO_DOWNLOADS: ContextVar[bool] = ContextVar("no_downloads", default=False)


class NotHereError(InputError):
    """Files of a repository are not on this machine.

    `files` has by repository and path the bytes of each; it is empty if the hub could not be asked.
    """

    def __init__(self, found: str, files: Mapping[tuple[str, str], int], allowed: str, fix: str) -> None:
        super().__init__(found, allowed=allowed, fix=fix)
        self.files = files


@contextlib.contextmanager
def no_downloads() -> Iterator[None]:
    """Within, `snapshot` downloads nothing: where a file is not on this machine, it raises `NotHereError`."""
    before = _NO_DOWNLOADS.set(True)
    try:
        yield
    finally:
        _NO_DOWNLOADS.reset(before)


_ANSWERS: ContextVar[list[bool] | None] = ContextVar("answers", default=None)
"""In `probe_hub_once` a list: empty before the first request, then whether the hub answers; else None."""


@contextlib.contextmanager
def probe_hub_once() -> Iterator[None]:
    """Within, the hub is first asked for an answer, once and for a short time; without one it is left alone.

    Then all is taken from its cache on this machine, as with HF_HUB_OFFLINE. Otherwise each file would wait
    for itself.
    """
    from huggingface_hub import constants

    offline, before = constants.HF_HUB_OFFLINE, _ANSWERS.set([])
    try:
        yield
    finally:
        _ANSWERS.reset(before)
        constants.HF_HUB_OFFLINE = offline


class UnresolvedId(str):
    """An id, of which no folder has the name; `tried` are the paths where one was looked for."""

    tried: tuple[str, ...] = ()


def _no_folder(name: str) -> str:
    """For messages, where a folder of this name would have been."""
    tried = name.tried if isinstance(name, UnresolvedId) else ()
    return f" (there is no {' and no '.join(tried)})" if tried else ""


def resolve_commit(repo: str, revision: str | None, kind: Kind) -> str:
    """The commit that a branch or tag of a hub repository names now; a commit names itself.

    Asks the hub; offline, or if the hub cannot be reached, takes the answer from the local hub cache.
    """
    revision = revision or "main"
    if not _ID.fullmatch(repo) or ".." in repo or "--" in repo:
        raise InputError(
            f"'{repo}' is neither an existing folder nor a {kind} id",
            allowed=f"an existing folder{_no_folder(repo)}, or an id of the form owner/name",
            fix=f"check the path: {PATHS_START}",
        )
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    from huggingface_hub import HfApi, constants

    api = HfApi()
    # without this timeout, the call would never end if the hub accepts the request and never answers
    api.repo_info = partial(api.repo_info, timeout=constants.HF_HUB_ETAG_TIMEOUT)  # type: ignore[method-assign]
    with _input_errors(repo, revision, kind, f"(revision '{revision}') is not"):
        return str(api.resolve_revision(repo, revision=revision, repo_type=kind).resolved)


def snapshot(repo: str, revision: str, kind: Kind, patterns: Sequence[str]) -> Path:
    """The local folder with a commit's files that match `patterns`; downloads those that are not cached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError

    fetch: Any = partial(
        snapshot_download, repo, repo_type=kind, revision=revision, allow_patterns=[*patterns]
    )
    missing = {}
    with _input_errors(repo, revision, kind, f"at {revision[:12]} is not whole"):
        if _NO_DOWNLOADS.get():
            with contextlib.suppress(DryRunError):  # the hub cannot be asked: what is here is taken for all
                files = fetch(dry_run=True)
                missing = {(repo, each.filename): each.file_size or 0 for each in files if each.will_download}
        if not missing:
            return Path(fetch())
    found = f"{kind} '{repo}' at {revision[:12]}: {len(missing)} of its files are not on this machine"
    raise NotHereError(found, missing, "a repository that is here", "run the benchmark to fetch them")


@contextlib.contextmanager
def _input_errors(repo: str, revision: str, kind: Kind, missing: str) -> Iterator[None]:
    """Around a request to the hub: turns its refusals, and errors of the network, into input errors.

    `missing` is what the message says if the hub cannot be reached, before "on this machine".
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
        RevisionResolutionError,
    )

    answers = _ANSWERS.get()
    if answers == [] and not constants.HF_HUB_OFFLINE:  # before the first request within `probe_hub_once`
        answers.append(ask_hub().reachable)
        constants.HF_HUB_OFFLINE = not answers[0]
    try:
        yield
    except GatedRepoError:
        raise InputError(
            f"{kind} '{repo}' on the hub is gated: its owner has to grant access",
            fix="accept its terms on the hub and log in with 'hf auth login'",
        ) from None
    except RevisionNotFoundError:
        raise InputError(
            f"{kind} '{repo}' on the hub has no revision '{revision}'",
            allowed="a branch, tag or commit of it",
            fix="leave the revision out to take 'main'",
        ) from None
    except RepositoryNotFoundError:
        example = "BAAI/bge-base-en-v1.5" if kind == "model" else "namespace-Pt/msmarco"
        raise InputError(
            f"the hub has no {kind} '{repo}', or it is private",
            allowed=f"an id such as {example} or a local folder{_no_folder(repo)}",
            fix="check the spelling, or log in with 'hf auth login'",
        ) from None
    except Exception as error:
        if getattr(error, "errno", None) in _DISK:
            error.add_note("set HF_HOME to a folder that can be written and has room")
            raise
        if isinstance(error, ImportError | ValueError) and "proxy" in str(error).lower():
            raise InputError(
                f"the hub: the proxy that the environment names cannot be used: {error}",
                allowed="in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY: http://HOST:PORT",
                fix="change or unset the variable",
            ) from None
        if not any(
            isinstance(each, (OSError, RevisionResolutionError))  # the hub's other errors are OSErrors
            or type(each).__module__.split(".")[0].startswith(_NETWORK_PACKAGES)
            for each in causes(error)
        ):
            raise  # not of the network: a bug
        left_alone = constants.HF_HUB_OFFLINE and answers != [False]
        why = "HF_HUB_OFFLINE is set" if left_alone else "the hub cannot be reached"
        raise NotHereError(
            f"{kind} '{repo}' {missing} on this machine and {why}",
            {},
            allowed=f"a local folder{_no_folder(repo)}, or an id the hub cache holds",
            fix="connect once to download it, or give the path of a local copy",
        ) from None
