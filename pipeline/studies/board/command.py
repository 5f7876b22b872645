"""What the study adds to `compare`: a folder of results in place of results."""

from __future__ import annotations

from functools import partial

from pipeline.core.plugins import import_and_call
from pipeline.studies.study import Study

STUDY = Study(
    "Which of all results in a folder are best, and how did each name change?",
    compare_help="Of a folder of results, those of each collection are compared; each name has its history.",
    below=partial(import_and_call, "studies.board.board:compare_below"),
)
