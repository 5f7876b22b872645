"""What a study is: one question asked of finished results, with all that only it needs in one folder.

The spine imports no study. The command line asks `pipeline.studies.table` which there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """A command of a study.

    Attributes:
        function: What it does; its docstring and its annotated parameters are its help, as Typer reads them.
        example: The arguments of its example.
        resumes: Whether it keeps what it finished before an interrupt.
    """

    function: Callable[..., None]
    example: str
    resumes: bool = False


@dataclass(frozen=True)
class Study:
    """What the command line knows of a study. Its module imports nothing heavy before a function is called.

    Attributes:
        question: What it answers.
        commands: By name.
    """

    question: str
    commands: Mapping[str, Command] = field(default_factory=dict)
