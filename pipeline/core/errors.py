"""What does a user see when the input is wrong? One message that says how to mend it."""

SHOWN = 120  # letters of a value that a message shows


class InputError(Exception):
    """Bad input: a config, a file, an argument. The command line exits with code 2.

    Args:
        found: What is wrong and where (file and line, or key), without a final stop.
        allowed: What would have been right.
        fix: What to do about it, in the imperative, without a final stop.
    """

    def __init__(self, found: str, *, allowed: str = "", fix: str = "") -> None:
        self.found, self.allowed, self.fix = found, allowed, fix
        parts = [found, f"Allowed: {allowed}" if allowed else "", fix[:1].upper() + fix[1:]]
        super().__init__(" ".join((". ".join(part for part in parts if part) + ".").splitlines()))


def shown(value: object) -> str:
    """A value as a message shows it: its `repr`, or the beginning of a long one."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
