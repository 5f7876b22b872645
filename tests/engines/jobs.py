"""Jobs of the engine of several processes, and its model: each process imports them, and little else."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipeline import InputError
from pipeline.encoders import Opener


def double(inputs: Iterator[Any], device: str, bar: Any) -> Iterator[Any]:
    for rows in inputs:
        bar.update(len(rows))
        yield 2 * rows, os.getpid(), device, os.environ["OMP_NUM_THREADS"]


def meet(fifo: Path, inputs: Iterator[Any], device: str, bar: Any) -> Iterator[Any]:
    """A job of which two parts must be at work at the same time: each waits until the other comes."""
    for rows in inputs:
        with open(fifo, "rb" if rows[0] else "wb"):
            yield os.getpid()


def die(always: int, once: Path, inputs: Iterator[Any], device: str, bar: Any) -> Iterator[int]:
    """A job that kills its process each time at one part, and at another the first time."""
    for rows in inputs:
        if rows[0] == always:
            os.kill(os.getpid(), signal.SIGKILL)
        if rows[0] == 1:
            with contextlib.suppress(FileExistsError):
                once.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        bar.update(len(rows))
        yield int(rows[0])


def refuse(inputs: Iterator[Any], device: str, bar: Any) -> Iterator[None]:
    for _ in inputs:
        raise InputError("found", allowed="allowed", fix="fix")
        yield


class Toy(Opener):
    """A model that is its own device."""

    def load(self, prepared: Path | None) -> str:
        if self.model.name == "broken":
            raise InputError("found", allowed="allowed", fix="fix")
        if self.model.name.startswith("dies in "):
            lives = Path(self.model.name.removeprefix("dies in "))
            left = int(lives.read_text())
            mine = lives.with_name(f"{lives.name}.{os.getpid()}")
            mine.write_text(str(left - 1))
            mine.replace(lives)  # at once: another process may read it
            if left > 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return str(self.model.device)


@dataclass
class Named:
    """A model's name and device, or those of a section of the config."""

    device: str
    name: str = ""
    section: ClassVar[str] = "model"
