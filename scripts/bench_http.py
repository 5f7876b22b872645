#!/usr/bin/env python
"""Texts a second from a server: by the `http` backend and by a bare asynchronous client, side by side.

.venv/bin/python scripts/bench_http.py

A process of its own serves random vectors, after a pause that stands for a model's work. Both clients send
the same texts in requests of the same size, at several concurrencies. Each pair of runs is made in turn; the
median of the ratios is what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
from functools import partial
from typing import Any

import numpy as np
from harness import in_turn, show

from pipeline.config.model import HttpSettings
from pipeline.core.progress import silent
from pipeline.encoders.http.backend import Served
from pipeline.engines import Part, ServerEngine, jobs

DIMENSION, BATCH = 384, 32


def serve(port: Any, seconds: float) -> None:
    """Answer every request with vectors, `seconds` after it came; one thread, many connections."""
    vector = base64.b64encode(np.random.default_rng(0).random(DIMENSION, np.float32).tobytes()).decode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            texts = json.loads(await reader.readexactly(int(length.split(b":")[1])))["input"]
            await asyncio.sleep(seconds)
            rows = [{"index": number, "embedding": vector} for number in range(len(texts))]
            body = json.dumps({"data": rows, "usage": {"prompt_tokens": 20 * len(texts)}}).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            writer.write(body)
            await writer.drain()

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(quietly, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def bare(url: str, texts: list[str], concurrency: int) -> None:
    """Ask by an asynchronous httpx2 client alone, and decode the vectors."""
    import httpx2

    async def ask() -> None:
        batches = iter([texts[start : start + BATCH] for start in range(0, len(texts), BATCH)])

        async def work(client: Any) -> None:
            for batch in batches:
                body = {"model": "m", "input": batch, "encoding_format": "base64"}
                answer = (await client.post(f"{url}/embeddings", json=body)).json()
                for row in answer["data"]:
                    np.frombuffer(base64.b64decode(row["embedding"]), "<f4")

        async with httpx2.AsyncClient() as client:
            await asyncio.gather(*(work(client) for _ in range(concurrency)))

    asyncio.run(ask())


def ours(url: str, texts: list[str], concurrency: int) -> None:
    """Ask as a run does: in parts, two of them at a time."""
    config = HttpSettings(backend="http", url=url, name="m", batch_size=BATCH, concurrency=concurrency)
    engine = ServerEngine(Served(config).connect)
    engine.load(1)
    size = len(texts) // 4
    parts = [
        Part(start, start + size, partial(texts.__getitem__, slice(start, start + size)))
        for start in range(0, len(texts), size)
    ]
    with silent("", None, "") as bar:
        for done in engine.each(partial(jobs.encode, "passages"), parts, bar):
            assert done.outputs[0].shape == (size, DIMENSION)
    engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.05, help="that the server takes for a request")
    parser.add_argument("--requests", type=int, default=40, help="for each of those under way at once")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    receiver, sender = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(sender, given.seconds), daemon=True
    )
    server.start()
    url = f"http://127.0.0.1:{receiver.recv()}/v1"
    for ask in (bare, ours):  # imports what each needs
        ask(url, ["x" * 80] * 4 * BATCH, 1)
    for concurrency in (1, 8, 32):
        texts = ["x" * 80] * (BATCH * given.requests * concurrency)
        tasks = {
            name: partial(ask, url, texts, concurrency) for name, ask in (("bare", bare), ("ours", ours))
        }
        timed = in_turn(tasks, given.rounds, warm=0)
        show(f"{concurrency} requests at once", timed, len(texts), "texts", "bare")
    server.terminate()


if __name__ == "__main__":
    main()
