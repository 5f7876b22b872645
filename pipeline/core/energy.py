"""The energy that the processors of this machine take, where the machine tells it.

Linux gives the counters of RAPL (Running Average Power Limit; Intel's and AMD's) as files: for each processor
package the microjoules so far, `energy_uj`, which begin again at 0 after `max_energy_range_uj`. They count
all processes of the machine, and neither its memory nor its GPUs. Often only the administrator may read them.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
READ_EVERY = 60.0  # seconds: a counter begins again after minutes at least


class EnergyMeter:
    """Adds up the energy of all packages from its creation on, until it is stopped.

    Args:
        counters: The folders of the packages; see `packages`.
    """

    def __init__(self, counters: list[Path]) -> None:
        self._ranges = [_number(folder / "max_energy_range_uj") + 1 for folder in counters]
        self._files = [folder / "energy_uj" for folder in counters]
        self._last = [_number(file) for file in self._files]
        self._microjoules = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="energy", daemon=True)
        self._thread.start()

    def read(self) -> float:
        """Joules since the creation."""
        with self._lock:
            now = [_number(file) for file in self._files]
            for before, after, range_ in zip(self._last, now, self._ranges, strict=True):
                self._microjoules += (after - before) % range_
            self._last = now
            return self._microjoules / 1e6

    def stop(self) -> float:
        """Joules from the creation to now; no counter is read any more."""
        joules = self.read()
        self._stopped.set()
        return joules

    def _watch(self) -> None:
        while not self._stopped.wait(READ_EVERY):
            self.read()


def packages() -> list[Path]:
    """The folders of the processor packages whose counters this process may read."""
    found = [path for path in POWERCAP.glob("intel-rapl:*") if re.fullmatch(r"intel-rapl:\d+", path.name)]
    return [path for path in sorted(found) if _is_readable(path)]


def start() -> EnergyMeter | None:
    """A meter of all packages; None where the machine does not tell."""
    counters = packages()
    return EnergyMeter(counters) if counters else None


def _is_readable(folder: Path) -> bool:
    try:
        return _number(folder / "energy_uj") >= 0 and _number(folder / "max_energy_range_uj") > 0
    except (OSError, ValueError):
        return False


def _number(file: Path) -> int:
    return int(file.read_text(encoding="ascii"))
