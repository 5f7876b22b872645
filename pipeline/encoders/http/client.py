"""The client of a server: the `openai` package, its retries, and errors that say what is wrong.

All requests run in one thread with an event loop. Other threads hand it coroutines and wait for what these
return; closing the client cancels what is under way. A key is read from the environment, held by the client
alone, and taken out of every message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.config.model import HttpSettings
from pipeline.config.rerank import HttpRerankSettings
from pipeline.config.stages import OPENAI, TEXTS, ChatSettings, EncodingServerSettings, ServerSettings
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.installation import require
from pipeline.core.records import JsonObject
from pipeline.encoders.batching import ServerUse

if TYPE_CHECKING:
    import openai
    from openai._types import RequestOptions

TRIES = 8  # times that a request is sent before the run gives up
SHOWN = 200  # characters of a server's own message
ANSWER_BYTES = 1 << 28  # of an answer, at most: 2,048 vectors of 4,096 numbers as text are 190 MB
BYTES_PER_TOKEN = 3.0  # until a server has said how many tokens it counted; English has about four

HIDDEN = "(not shown: the key is in it)"

DECODED = ("content-encoding", "content-length", "transfer-encoding")
"""Headers of the bytes that were sent, and not of those that are left after decoding."""

T = TypeVar("T")


_sent: ContextVar[list[float]] = ContextVar("sent")
"""The times at which the current request was sent, the last one at the end."""


class TooLargeError(Exception):
    """A request that the server refuses for its size; the message is the server's."""


class RefusedTextError(InputError):
    """A request of which the server refuses one text, as far as its answer says."""


class ResponseTooLargeError(Exception):
    """An answer of more than `ANSWER_BYTES`."""


def key_of(settings: ServerSettings, url: str, section: str) -> str | None:
    """The key from the environment; None if none is needed.

    Raises:
        InputError: It is not there, or the package `openai` is not.
    """
    require("openai", "http", f"{section}.backend: http")
    name = settings.api_key_env or ("OPENAI_API_KEY" if url == OPENAI else None)
    key = os.environ.get(name, "").strip() if name else None
    if key == "":
        raise InputError(
            f"{section}.api_key_env: the environment variable that it names is not set"
            if settings.api_key_env
            else f"{section}.url: {OPENAI} wants a key, and OPENAI_API_KEY is not set",
            fix="export it before the run; do not write the key itself into a config",
        )
    if key and not re.fullmatch(r"[\x21-\x7e]+", key):
        raise InputError(
            f"{section}.api_key_env: the key in the environment variable has a character that no header can "
            "hold, such as a line break",
            allowed="letters, digits and signs of ASCII, without spaces",
            fix="export the key again",
        )
    return key


class RequestSize:
    """The most texts and estimated tokens of a request, lowered where the server refuses one."""

    def __init__(self, texts: int, tokens: int) -> None:
        self.texts, self.tokens = texts, tokens
        self._bytes = self._counted = 0

    def count(self, size: int, tokens: int) -> None:
        """Learn from the number of tokens that a server has counted in so many bytes."""
        self._bytes += size
        self._counted += tokens

    def estimate(self, size: int) -> float:
        """The number of tokens of so many bytes."""
        return size * self._counted / self._bytes if self._bytes else size / BYTES_PER_TOKEN

    def next(self, sizes: Sequence[int]) -> int:
        """How many of some texts, given by their bytes, the next request takes: one at least."""
        budget, count = float(self.tokens), 0
        for size in sizes[: self.texts]:
            budget -= self.estimate(size)
            if budget < 0 and count:
                break
            count += 1
        return count

    def refused(self, sizes: Sequence[int]) -> None:
        """Halve the limits, after a server has refused several texts, given by their bytes, as too many."""
        self.texts = max(min(self.texts, len(sizes) // 2), 1)
        self.tokens = max(min(self.tokens, int(self.estimate(sum(sizes)) / 2)), 1)


class Client:
    """The connection to one server; `section` is that of its settings in the config, for messages.

    Raises:
        InputError: The package `openai` or the key is missing.
    """

    def __init__(self, settings: HttpSettings | HttpRerankSettings | ChatSettings, section: str) -> None:
        self.settings, self.section = settings, section
        self.url = settings.url
        if isinstance(settings, EncodingServerSettings):
            self._name, self._named_by = settings.name, f"{section}.name"
            self.size = RequestSize(settings.batch_size or TEXTS, settings.batch_tokens)
        else:  # one text a request
            self._name, self._named_by = settings.model, f"{section}.model"
            self.size = RequestSize(1, 1)
        self._key = key_of(settings, settings.url, section)
        self._timeout = settings.timeout
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._answered = self._served = False  # with anything; with what was asked for
        self._options: RequestOptions = {}
        self._api = self._open()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="requests", daemon=True)
        self._thread.start()

    def _open(self) -> openai.AsyncOpenAI:
        import openai

        class Api(openai.AsyncOpenAI):
            """Notes each request that is sent, retries included."""

            async def _prepare_request(self, request: object) -> None:
                _sent.get().append(time.perf_counter())

            def _should_retry(self, response: Any) -> bool:
                return not _is_about_numbers(response.text) and super()._should_retry(response)

        limit = self._timeout

        class Http(openai.DefaultAsyncHttpxClient):
            """Limits an answer's seconds and bytes; those of httpx are for each part of it."""

            async def send(self, request: Any, **options: Any) -> Any:
                content = bytearray()
                try:
                    async with asyncio.timeout(limit):
                        answer = await super().send(request, **{**options, "stream": True})
                        async with contextlib.aclosing(answer):
                            async for part in answer.aiter_bytes():
                                content += part
                                if len(content) > ANSWER_BYTES:
                                    raise ResponseTooLargeError
                except TimeoutError:
                    httpx = sys.modules[
                        type(request).__module__.partition(".")[0]
                    ]  # openai changed to httpx2
                    raise httpx.ReadTimeout(f"no whole answer in {limit:g} seconds") from None
                headers = [
                    (name, value) for name, value in answer.headers.multi_items() if name not in DECODED
                ]
                return type(answer)(
                    answer.status_code, headers=headers, content=bytes(content), request=request
                )

        verify = not self.url.startswith("http:")  # it needs no certificates, which take 50 ms to read
        try:
            http = Http(timeout=self._timeout, follow_redirects=False, verify=verify)
        except (ImportError, ValueError) as error:  # what a proxy needs, or its address
            raise InputError(
                f"{self.section}.url: the proxy that the environment names cannot be used: {error}",
                allowed="in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY: http://HOST:PORT",
                fix="change or unset the variable, or name the server in NO_PROXY",
            ) from None
        api = Api(api_key=self._key or "none", base_url=self.url, timeout=self._timeout, http_client=http)
        if not self._key:
            self._options["headers"] = {"Authorization": openai.Omit()}
        if self.url != OPENAI:  # environment variables meant for OpenAI alone
            api.organization = api.project = None
        return api

    def run(self, work: Coroutine[object, None, T]) -> T:
        """The result of a coroutine, which the client's thread runs."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def work(self, worker: Callable[[], Coroutine[object, None, None]]) -> None:
        """Run `concurrency` workers at once; the first error cancels the others."""
        tasks = [asyncio.ensure_future(worker()) for _ in range(self.settings.concurrency)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """Cancel what is under way, and close the connections."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._api.close()

    async def round_trip(self) -> float:
        """Seconds that a request takes for which the server computes nothing; a refusal is an answer, too."""
        import openai

        sent: list[float] = []
        _sent.set(sent)
        with contextlib.suppress(openai.APIStatusError):
            await self._api.get("/models", cast_to=object, options={**self._options, "max_retries": 0})
        return time.perf_counter() - sent[-1]

    async def post(self, path: str, body: JsonObject, use: ServerUse) -> tuple[object, float]:
        """The answer to a request, as JSON, and the seconds that the last try took.

        `path` is appended to the server's address, `use` counts requests.

        Raises:
            TooLargeError: The request has to be made smaller.
            InputError: The server refuses, or cannot be reached.
        """
        async with self._slots:
            sent: list[float] = []
            _sent.set(sent)
            try:
                answer = await self._send(path, body)
            finally:
                use.requests += len(sent)
                use.retries += max(len(sent) - 1, 0)
            return answer, time.perf_counter() - sent[-1]

    async def _send(self, path: str, body: JsonObject) -> object:
        """The answer to a request, after the retries of `openai`.

        The first request has none, so that an address where nothing answers is refused at once.
        """
        import openai

        for retries in (TRIES - 1,) if self._answered else (0, TRIES - 2):
            options: RequestOptions = {**self._options, "max_retries": retries}
            try:
                answer = await self._api.post(path, cast_to=object, body=body, options=options)
            except openai.APIStatusError as error:
                self._answered = True
                refusal = self._refusal(error)
                if retries or refusal:
                    raise refusal or self._given_up(error) from None
            except openai.APIConnectionError as error:
                refusal = self._unreachable(error)
                if retries or (not self._answered and _not_connected(error)):
                    raise refusal from None
            except ResponseTooLargeError:
                raise self.bad_answer(f"an answer of more than {ANSWER_BYTES:,} bytes") from None
            except (openai.OpenAIError, ValueError, RecursionError) as error:  # such as JSON that breaks off
                raise self.bad_answer(f"what cannot be read: {error}") from None
            else:
                self._answered = self._served = True
                return answer
        raise RuntimeError("the last try returns or raises")

    def _refusal(self, error: openai.APIStatusError) -> Exception | None:
        """The error for a request that would be refused again; None if a retry may help."""
        status, answer = error.status_code, error.response.text
        at = self._answers(error)
        if 300 <= status < 400:
            place = self.clean(error.response.headers.get("location") or "another address")
            return InputError(
                f"{self.section}.url: {self.url} redirects to {place}",
                allowed="a server that answers itself: texts and key are sent to no other address",
                fix=f"set {self.section}.url to that address if you trust it",
            )
        if status == 413 or (status in (400, 422, 500) and _is_about_size(answer)):  # 500: llama.cpp
            return TooLargeError(self.clean(error_text(error.body)) or f"status {status}")
        if status in (401, 403):
            key = "the key is wrong" if self._key else "it wants a key"
            fix = f"set {self.section}.api_key_env to the name of the environment variable that holds it"
            return InputError(f"{at}; {key}", fix=fix)
        if status == 404:
            return InputError(
                f"{at}; there is no model '{self._name}', or nothing is served at this address",
                fix=f"check {self._named_by} and {self.section}.url, which often ends in /v1",
            )
        if status == 429 and "insufficient_quota" in answer:
            return InputError(at, fix="check the credit or use another key, and run again: it resumes")
        if self._served and (status in (400, 422) or (status >= 500 and _is_about_numbers(answer))):
            # the same request of other texts was answered
            return RefusedTextError(at, fix="change or leave out the text, or check the server's log")
        if status not in (408, 409, 429) and status < 500:
            return InputError(at, fix="change the config as the server says")
        return None

    def _answers(self, error: openai.APIStatusError) -> str:
        """What a server answers, as a clause."""
        message = self.clean(error_text(error.body))
        return (
            f"{self.section}.url: {self.url} answers {error.status_code}{f': {message}' if message else ''}"
        )

    def _given_up(self, error: openai.APIStatusError) -> InputError:
        """The error for a server that still refuses after the retries, or that asks for a longer wait.

        `openai` does not retry where `Retry-After` is above two minutes, or `x-should-retry` is false.
        """
        failed = counted(len(_sent.get()), "attempt")
        wait = self.clean(error.response.headers.get("retry-after") or "")
        asks = f"; it asks to wait {wait}{' s' if wait.isdecimal() else ''} (Retry-After)" if wait else ""
        return InputError(
            f"{self._answers(error)}; {failed} failed{asks}",
            fix=f"run again later, the run resumes; or lower {self.section}.concurrency",
        )

    def _unreachable(self, error: openai.APIConnectionError) -> InputError:
        """The error for a server that gives no answer."""
        why = self.clean(str(error.__cause__ or error).rstrip(".") or type(error.__cause__).__name__)
        at = f"{self.section}.url: no answer from {self.url}"
        if not self._answered and _not_connected(error):
            return InputError(f"{at}: {why}", fix="start the server, or correct the address")
        return InputError(
            f"{at} in {counted(len(_sent.get()), 'try', 'tries')}: {why}",
            fix=f"run again, the run resumes; if answers take long, raise {self.section}.timeout",
        )

    def bad_answer(self, what: str, answer: object = None, fix: str = "") -> InputError:
        """The error for an answer that is not what was asked for, with what it says of an error itself."""
        said = self.clean(error_text(answer))
        return InputError(
            f"{self.section}.url: {self.url} answers with {self.clean(what)}{f': {said}' if said else ''}",
            fix=fix or f"check {self.section}.url and {self._named_by}, or the server's log",
        )

    def clean(self, text: str) -> str:
        """A server's text for a message: one line, not long, and nothing of it if the key is in it."""
        if self._key and self._key in text:
            return HIDDEN
        shown = " ".join(text[: 4 * SHOWN].split())
        return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."


def error_text(body: object) -> str:
    """What a server says about an error, where it is text in a usual place or alone; "" otherwise.

    Those are OpenAI's `error.message` and `code`, `error` of TEI and Ollama, `message` of Cohere, and
    the first `msg` in `detail` of FastAPI.
    """
    code: object = None
    while isinstance(body, (Mapping, list)):
        if isinstance(body, list):
            body = next(iter(body), None)
        else:
            code = body.get("code", code)
            body = next((body[name] for name in ("error", "message", "detail", "msg") if name in body), None)
    text = body if isinstance(body, str) and not body.startswith("<") else ""  # no web page
    return f"{text} ({code})" if isinstance(code, str) else text


TOO_MUCH = (
    "too (long|many|large)|maximum|exceed|must have less|at most|(larger|more) than|or (fewer|less)"
    "|per request|limit of"
)
MEASURED = "token|length|batch|input|size|items|texts"


def _is_about_size(message: str) -> bool:
    """Whether a server refuses a request because it has too many texts or tokens."""
    return all(re.search(pattern, message, re.IGNORECASE) for pattern in (TOO_MUCH, MEASURED))


def _is_about_numbers(message: str) -> bool:
    """Whether a server fails because a vector is not finite, which it is again if it is computed again."""
    return re.search(r"\bnan\b|unsupported value|infinit", message.lower()) is not None


def _not_connected(error: Exception) -> bool:
    """Whether no connection was made."""
    cause = error.__cause__
    return isinstance(cause, OSError) or "Connect" in type(cause).__name__
