"""The client of a server: requests, sent again where that can help, and errors that say what is wrong.

All requests run in one thread with an event loop. Other threads hand it coroutines and wait for what these
return; closing the client cancels what is under way. The `openai` package sends the requests. When to send
one again is decided here, because that is counted, and because a pause that a server asks for is one for all.

A key is read from the environment, held by the client alone, and taken out of every message.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Coroutine, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from pipeline.config.server import OPENAI, ServerSettings
from pipeline.core.errors import InputError
from pipeline.encoders.http.access import key_of
from pipeline.encoders.http.batches import TooLargeError
from pipeline.encoders.http.limits import Limits
from pipeline.encoders.usage import ServerUse

TRIES = 8  # times that a request is sent before the run gives up
FIRST_PAUSE = 0.5  # seconds before a request is sent again; doubled each time, up to LONGEST_PAUSE
LONGEST_PAUSE = 60.0
LONGEST_ASKED = 600.0  # seconds of a pause that a server may ask for; a longer one ends the run
SHOWN = 300  # characters of a server's own message

T = TypeVar("T")


class Client:
    """Asks one server.

    Args:
        settings: How it may be asked.
        url: Its address.
        name: The model's name there, for messages.
        section: The section of the config, for messages.

    Raises:
        InputError: The package `openai` or the key is missing.
    """

    def __init__(self, settings: ServerSettings, url: str, name: str, section: str = "model") -> None:
        self.url, self._name, self._section = url, name, section
        self._key = key_of(settings, url, section)
        self._timeout = settings.timeout
        self._limits = Limits(settings.requests_per_minute, settings.tokens_per_minute)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._answered = False
        self._options: dict[str, Any] = {}
        self._api = self._open()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="requests", daemon=True)
        self._thread.start()

    def _open(self) -> Any:
        import openai

        api = openai.AsyncOpenAI(
            api_key=self._key or "none",
            base_url=self.url,
            timeout=self._timeout,
            max_retries=0,
        )
        if not self._key:
            self._options["headers"] = {"Authorization": openai.Omit()}
        if self.url != OPENAI:  # of the environment, and of nobody else's business
            api.organization = api.project = None
        return api

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, which the client's thread runs."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

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

    async def post(
        self, path: str, body: Mapping[str, Any], tokens: float, use: ServerUse
    ) -> tuple[Any, float]:
        """The answer to a request, as JSON, and the seconds it took; it is sent again where that can help.

        Args:
            path: Appended to the server's address.
            body: JSON.
            tokens: An estimate of its tokens.
            use: Requests are counted in it.

        Raises:
            TooLargeError: The request has to be made smaller.
            InputError: The server refuses, or cannot be reached.
        """
        async with self._slots:
            for number in range(1, TRIES + 1):
                await self._wait(tokens)
                use.requests += 1
                started = time.perf_counter()
                try:
                    answer = await self._api.post(path, cast_to=object, body=body, options=self._options)
                except Exception as error:  # of several packages; `_pause_after` raises what it does not know
                    pause = self._pause_after(error, number)
                else:
                    self._answered = True
                    return answer, time.perf_counter() - started
                use.retries += 1
                await asyncio.sleep(pause)
        raise RuntimeError("the last try returns or raises")

    async def _wait(self, tokens: float) -> None:
        """Wait until a request may be sent."""
        delay = self._limits.reserve(tokens, time.monotonic()) - time.monotonic()
        while delay > 0:
            await asyncio.sleep(delay)
            delay = self._limits.paused(time.monotonic())

    def _pause_after(self, error: Exception, number: int) -> float:
        """Seconds to wait after the try of that number has failed; raises what trying again cannot help."""
        import openai

        growing: float = min(FIRST_PAUSE * 2 ** (number - 1), LONGEST_PAUSE) * random.uniform(0.75, 1.25)
        if isinstance(error, openai.APIStatusError):
            asked = self._pause_asked_for(error, number)
            if not asked:
                return growing
            self._limits.pause(time.monotonic() + asked)
            return 0.0
        if isinstance(error, openai.APIConnectionError):
            self._refuse_unreachable(error, number)
            return growing
        if isinstance(error, (openai.OpenAIError, ValueError)):  # such as JSON that breaks off
            raise self.bad_answer(f"what cannot be read: {error}") from None
        raise error

    def _pause_asked_for(self, error: Any, number: int) -> float | None:
        """Seconds of pause that a server asks for with an error; None if it asks for none.

        Raises an error if the same request would be refused again.
        """
        status, said = error.status_code, self.clean(_message(error))
        at = f"{self._section}.url: {self.url} answers {status}: {said}"
        if status == 413 or (status in (400, 422) and _is_about_size(said)):
            raise TooLargeError(said)
        if status in (401, 403):
            key = "the key is wrong" if self._key else "it wants a key"
            fix = f"set {self._section}.api_key_env to the name of the environment variable that holds it"
            raise InputError(f"{at}; {key}", fix=fix) from None
        if status == 404:
            raise InputError(
                f"{at}; there is no model '{self._name}', or nothing is served at this address",
                fix=f"check {self._section}.name and {self._section}.url, which often ends in /v1",
            ) from None
        if status == 429 and "insufficient_quota" in said:
            raise InputError(
                at, fix="check the credit or use another key, and run again: it resumes"
            ) from None
        if status not in (408, 409, 425, 429) and status < 500:
            raise InputError(at, fix="change the config as the server says") from None
        if number == TRIES:
            raise InputError(
                f"{at}; {TRIES} attempts failed",
                fix=f"run again later, the run resumes; or lower {self._section}.concurrency",
            ) from None
        asked = _retry_after(error.response.headers)
        if asked is not None and asked > LONGEST_ASKED:
            raise InputError(
                f"{at}; it asks to wait for {asked:,.0f} seconds", fix="run again then; the run resumes"
            ) from None
        return asked

    def _refuse_unreachable(self, error: Exception, number: int) -> None:
        """Raise an error if no server is there, or the last try failed; the first tries may meet a pause."""
        why = self.clean(str(error.__cause__ or error) or type(error.__cause__).__name__)
        is_absent = isinstance(error.__cause__, OSError) or "onnect" in type(error.__cause__).__name__
        at = f"{self._section}.url: no answer from {self.url}"
        if is_absent and not self._answered:
            raise InputError(f"{at}: {why}", fix="start the server, or correct the address") from None
        if number == TRIES:
            raise InputError(
                f"{at} in {TRIES} tries: {why}",
                fix=f"run again, the run resumes; if answers take long, raise {self._section}.timeout",
            ) from None

    def bad_answer(self, what: str) -> InputError:
        """The error for an answer that is not what was asked for."""
        return InputError(
            f"{self._section}.url: {self.url} answers with {self.clean(what)}",
            fix=f"check {self._section}.url and {self._section}.name, or the server's log",
        )

    def clean(self, text: str) -> str:
        """A server's text for a message: one line, not long, and without the key."""
        shown = " ".join(text.replace(self._key, "[key]").split() if self._key else text.split())
        return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."


def _message(error: Any) -> str:
    """What a server says about an error: its own message if it is in the usual place, else the whole body."""
    body = error.body
    for name in ("error", "message", "detail"):
        if isinstance(body, Mapping) and name in body:
            body = body[name]
    kind = error.body.get("code") if isinstance(error.body, Mapping) else None
    text = str(body if body is not None else error.response.text)
    return f"{text} ({kind})" if isinstance(kind, str) and kind not in text else text


def _is_about_size(message: str) -> bool:
    """Whether a server refuses a request because it has too many texts or tokens."""
    words = message.lower()
    too_much = (
        "too long",
        "too many",
        "too large",
        "maximum",
        "exceed",
        "must have less",
        "must have at most",
    )
    measured = ("token", "length", "batch", "input", "size")
    return any(each in words for each in too_much) and any(each in words for each in measured)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the headers of an answer ask to wait, as a number or a date; None if they do not."""
    with contextlib.suppress(ValueError, TypeError):
        if "retry-after-ms" in headers:
            return max(float(headers["retry-after-ms"]) / 1000, 0.0)
    given = headers.get("retry-after")
    if given is None:
        return None
    try:
        return max(float(given), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(given).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None
