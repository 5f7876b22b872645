"""OpenVINO, imported without its telemetry, and the number formats that it computes in here."""

from __future__ import annotations

import sys
from typing import Any


def import_openvino() -> Any:
    """The OpenVINO package; without the telemetry package, which is blocked, it reports nothing to anyone."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def has_bfloat16() -> bool:
    """Whether this processor multiplies in bfloat16; if not, OpenVINO emulates it."""
    capabilities: list[str] = import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return "BF16" in capabilities
