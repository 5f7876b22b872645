"""A small hub on this machine: serves folders as repositories, by commit, as huggingface_hub asks for them.

Run what is tested in a subprocess with `HubServer.environment`, because the client reads `HF_ENDPOINT` when
it is imported.
"""

import hashlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class HubServer:
    """Serves what is published until `close`.

    Attributes:
        url: For `HF_ENDPOINT`.
        requests: Method and path of each request so far.
        gated: Repositories that say what they hold and give no file.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.gated: set[str] = set()
        self._files: dict[tuple[str, str, str], dict[str, bytes]] = {}
        self._branches: dict[tuple[str, str, str], str] = {}
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def publish(self, kind: str, repo: str, folder: Path, branch: str = "main") -> str:
        """Commit a folder's files to a branch of a "dataset" or "model" repository; the commit."""
        names = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in names}
        commit = hashlib.sha1(repr((kind, repo, sorted(files.items()))).encode()).hexdigest()
        self._files[f"{kind}s", repo, commit] = files
        self._branches[f"{kind}s", repo, branch] = commit
        return commit

    def close(self) -> None:
        """Stop serving; the port refuses from then on."""
        self._server.shutdown()
        self._server.server_close()

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """Environment variables for a process that uses this hub, with its own cache in `home`."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        ours = {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
        return {**kept, **ours, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1", **more}

    def downloads(self) -> list[str]:
        """Paths of the files that were fetched so far, oldest first, within their repositories."""
        gets = (path for method, path in self.requests if method == "GET" and "/resolve/" in path)
        return [path.split("/resolve/", 1)[1].split("/", 1)[1] for path in gets]

    def find(self, kind: str, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | str:
        """Commit and files of a revision, or the hub's code for what is not there."""
        if not any((kind, repo) == known[:2] for known in self._branches):
            return "RepoNotFound"
        commit = self._branches.get((kind, repo, revision), revision)
        files = self._files.get((kind, repo, commit))
        return "RevisionNotFound" if files is None else (commit, files)


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        if path.startswith("/api/"):
            self._api(*path.removeprefix("/api/").split("/", 1))
        elif "/resolve/" in path:
            repo, rest = path.lstrip("/").split("/resolve/", 1)
            kind = "datasets" if repo.startswith("datasets/") else "models"
            self._file(kind, repo.removeprefix("datasets/"), *rest.split("/", 1))
        else:
            self._missing("EntryNotFound")

    def _api(self, kind: str, rest: str) -> None:
        """`<id>`, `<id>/revision/<rev>` or `<id>/tree/<rev>[/<folder>]`."""
        repo, tree, place = rest.partition("/tree/")
        revision, _, folder = place.partition("/")
        if not tree:
            repo, _, revision = rest.partition("/revision/")
        answer = self.hub.find(kind, repo, revision or "main")
        if isinstance(answer, str):
            self._missing(answer)
            return
        commit, files = answer
        if tree:
            listed = [
                {"type": "file", "path": name, "size": len(data), "oid": _blob(data)}
                for name, data in files.items()
                if name.startswith(folder)
            ]
            self._send(json.dumps(listed).encode())
            return
        siblings = [{"rfilename": name} for name in files]
        record = {"id": repo, "sha": commit, "siblings": siblings, "private": False, "tags": []}
        record |= {"gated": False, "disabled": False, "downloads": 0, "likes": 0}
        self._send(json.dumps(record).encode())

    def _file(self, kind: str, repo: str, revision: str, name: str) -> None:
        answer = self.hub.find(kind, repo, revision)
        if isinstance(answer, str):
            self._missing(answer)
        elif repo in self.hub.gated:
            self._missing("GatedRepo")
        elif name not in answer[1]:
            self._missing("EntryNotFound", {"X-Repo-Commit": answer[0]})
        else:
            data = answer[1][name]
            headers = {"X-Repo-Commit": answer[0], "ETag": f'"{_blob(data)}"', "Accept-Ranges": "bytes"}
            self._send(data, {**headers, "Content-Type": "application/octet-stream"})

    def _missing(self, code: str, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps({"error": code}).encode(), {"X-Error-Code": code, **(headers or {})}, 404)

    def _send(self, data: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        usual = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, value in (usual | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


def _blob(data: bytes) -> str:
    """A file's git blob id, which the hub takes for its ETag."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
