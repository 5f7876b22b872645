"""The counters of RAPL, from a folder of files as Linux has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core import energy

RANGE = 262_143_328_850


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages, a part of the first, and a platform's counter, which is none of a package."""
    for name, count in (("intel-rapl:0", 1_000), ("intel-rapl:1", RANGE - 9), ("intel-rapl:0:0", 5)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{count}\n", encoding="ascii")
        (tmp_path / name / "max_energy_range_uj").write_text(f"{RANGE}\n", encoding="ascii")
    (tmp_path / "intel-rapl").mkdir()
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    return tmp_path


def test_packages_are_added_up_also_past_the_end_of_a_counter(powercap: Path) -> None:
    assert [path.name for path in energy.packages()] == ["intel-rapl:0", "intel-rapl:1"]
    meter = energy.start()
    assert meter is not None
    assert meter.read() == 0
    (powercap / "intel-rapl:0/energy_uj").write_text("3001000\n", encoding="ascii")
    (powercap / "intel-rapl:1/energy_uj").write_text("1999990\n", encoding="ascii")  # after RANGE comes 0
    (powercap / "intel-rapl:0:0/energy_uj").write_text("700000000\n", encoding="ascii")
    assert meter.read() == pytest.approx(3 + 2)
    (powercap / "intel-rapl:1/energy_uj").write_text("2999990\n", encoding="ascii")
    assert meter.stop() == pytest.approx(6)


def test_a_machine_that_does_not_tell_has_no_meter(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (powercap / "intel-rapl:0/energy_uj").write_text("?\n", encoding="ascii")
    assert [path.name for path in energy.packages()] == ["intel-rapl:1"]
    monkeypatch.setattr(energy, "POWERCAP", powercap / "none")
    assert energy.start() is None
