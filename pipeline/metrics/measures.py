"""The measures by name; each family has a file, which holds their functions of arrays.

Formulas are those of trec_eval (https://github.com/usnistgov/trec_eval), where it has the measure, and the C
files named beside functions are its own; `docs/measures.md` gives each formula.
"""

from __future__ import annotations

from pipeline.metrics import binary, gains, incomplete, reading
from pipeline.metrics.graded import Definition

MEASURES: dict[str, Definition] = {
    **binary.MEASURES,
    **gains.MEASURES,
    **reading.MEASURES,
    **incomplete.MEASURES,
}
