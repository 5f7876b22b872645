"""How is OpenVINO used so that nobody is told of it, and what does it compute in here?"""

from __future__ import annotations

import sys
from typing import Any


def import_openvino() -> Any:
    """OpenVINO, imported so that it reports nothing to anyone: it falls back to a telemetry stub."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def has_bfloat16() -> bool:
    """Whether this processor multiplies in bfloat16 by itself; where it does not, that is emulated."""
    known: list[str] = import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return "BF16" in known
