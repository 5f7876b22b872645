"""A server of embeddings and of scores on the loopback address, which serves all-MiniLM-L6-v2.

It speaks the interface of OpenAI, and `/rerank` in both forms. It keeps what it was asked for and what it
answered, and a test may have it answer the next requests wrongly: `server.faults` are functions that are
called with the handler, the first one with the first request, and return whether they have answered.
"""

import base64
import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

MODEL = "all-minilm-l6-v2"


class EmbeddingServer:
    """A server and what it was asked.

    Args:
        embed: The vectors float32 [texts, dimension] of some texts.
    """

    def __init__(self, embed: Callable[[list[str]], Any]) -> None:
        self.embed = embed
        self.key: str | None = None  # what clients must send
        self.lock = threading.Lock()
        self.faults: list[Callable[[Any], bool]] = []
        self.requests: list[dict[str, Any]] = []  # each request's path, headers and body, refused ones too
        self.answered: Counter[str] = Counter()  # how often each text was answered successfully
        self.most_texts: int | None = None  # of a request; more are refused with 413
        self.as_lists = False  # vectors as lists whatever was asked for
        self.reverse = False  # vectors in the opposite order
        server = self

        class Handler(BaseHTTPRequestHandler):
            server_of_test = server
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                server.answer(self)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

            def send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
                """Answer with JSON, given as an object or as bytes, or with text as HTML."""
                is_text = isinstance(content, str)
                body = content.encode() if is_text else content
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                kind = "text/html" if is_text else "application/json"
                self.send_response(status)
                given = {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}
                for name, value in given.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Print nothing of clients that have gone away."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        self._thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self.http.shutdown()
        self._thread.join()
        self.http.server_close()

    def clear(self) -> None:
        """Forget what was asked."""
        with self.lock:
            self.requests.clear()
            self.answered.clear()

    def is_faulty(self, handler: Any) -> bool:
        """Take a request; whether a fault has answered it."""
        handler.body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            headers = {name.lower(): each for name, each in handler.headers.items()}
            self.requests.append({"path": handler.path, "headers": headers, "body": handler.body})
            fault = self.faults.pop(0) if self.faults else None
        return bool(fault and fault(handler))

    def answer(self, handler: Any) -> Any:
        """Answer one request."""
        if self.is_faulty(handler):
            return None
        given = handler.headers.get("Authorization")
        if self.key and given != f"Bearer {self.key}":
            return handler.send(401, {"error": {"message": f"Incorrect API key provided: {given}"}})
        if handler.body.get("model", MODEL) != MODEL:
            message = f"The model {handler.body['model']} does not exist"
            return handler.send(404, {"error": {"message": message}})
        answers = {"/v1/embeddings": self.send_vectors, "/v1/rerank": self.send_scores}
        if handler.path not in answers:
            return handler.send(404, {"detail": "Not Found"})
        texts = handler.body.get("input") or handler.body.get("documents") or handler.body["texts"]
        if self.most_texts and len(texts) > self.most_texts:
            error = f"batch size {len(texts)} > maximum allowed {self.most_texts}"
            return handler.send(413, {"error": error})
        return answers[handler.path](handler)

    def send_vectors(self, handler: Any, change: Callable[[list[Any]], list[Any]] = lambda rows: rows) -> Any:
        """Answer with vectors, of which a test may change something."""
        texts = handler.body["input"]
        vectors = self.embed(texts)[:, : handler.body.get("dimensions")]
        if handler.body.get("encoding_format") == "base64" and not self.as_lists:
            found = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
        else:
            found = [[float(number) for number in vector] for vector in vectors]
        rows = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(found)]
        rows = change(rows[::-1] if self.reverse else rows)
        tokens = sum(len(text) // 4 + 1 for text in texts)
        with self.lock:
            self.answered.update(texts)
        return handler.send(200, {"data": rows, "model": MODEL, "usage": {"prompt_tokens": tokens}})

    def send_scores(self, handler: Any) -> Any:
        """Answer with the cosines of a query and its passages, the best first."""
        body = handler.body
        passages = body.get("documents", body.get("texts"))
        vectors = self.embed([body["query"], *passages])
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        scores = (vectors[1:] @ vectors[0]).tolist()
        order = sorted(range(len(scores)), key=lambda n: -scores[n])
        with self.lock:
            self.answered.update(f"{body['query']}\n{passage}" for passage in passages)
        if "texts" in body:
            return handler.send(200, [{"index": n, "score": scores[n]} for n in order])
        rows = [{"index": n, "relevance_score": scores[n]} for n in order]
        return handler.send(200, {"results": rows, "usage": {"total_tokens": sum(map(len, passages)) // 4}})
