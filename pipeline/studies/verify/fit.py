"""How near changes bring scores that one cause must explain together, and which changes explain them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.results.published import ScoreCheck

Means = Mapping[str, float]
"""Means by measure."""
CHANCE = 0.01
"""Explanations are certain if at most so many of the changes tried are expected to fit by chance."""
PRECISION = 1e-9  # of a mean that is computed twice


@dataclass
class Fit:
    """What changes make of some scores."""

    scores: Sequence[ScoreCheck]
    base: Means  # the means of the finished ranking
    measured: dict[str, Means] = field(default_factory=dict)  # the means with each change
    # The same from a sample, of changes that are not measured.
    estimated: dict[str, Means] = field(default_factory=dict)
    errors: dict[str, Means] = field(default_factory=dict)  # the standard errors of these

    def distance(self, means: Means) -> float:
        """The mean distance of means from the scores."""
        return sum(abs(means[cell.measure] - cell.expected) for cell in self.scores) / len(self.scores)

    def nearest(self, changes: Mapping[str, Means]) -> list[str]:
        """Changes by the distance of their means."""
        return sorted(changes, key=lambda change: self.distance(changes[change]))

    def likeliest(self) -> list[str]:
        """Estimated changes by the likelihood of the scores, given normal errors.

        By distance alone, changes that move little would come before those whose effect is uncertain.
        """

        def unlikelihood(change: str) -> float:
            means, errors = self.estimated[change], self.errors[change]
            return sum(
                0.5 * ((means[cell.measure] - cell.expected) / errors[cell.measure]) ** 2
                + math.log(errors[cell.measure])
                for cell in self.scores
            )

        return sorted(self.estimated, key=unlikelihood)

    def moves(self, means: Means, measure: str) -> bool:
        """Whether a change that gives these means has an effect on a measure."""
        return abs(means[measure] - self.base[measure]) > PRECISION

    def explained(self, change: str) -> list[ScoreCheck]:
        """The scores that a measured change explains; none unless it gives all scores that it moves.

        It gives the published digits, or is no further from a reproduced score than before.
        """
        means = self.measured[change]
        moved = [cell for cell in self.scores if self.moves(means, cell.measure)]
        for cell in moved:
            before = abs(cell.difference or 0) if cell.verdict == "reproduced" else 0.0
            if abs(means[cell.measure] - cell.expected) > max(half_unit(cell), before) + PRECISION:
                return []
        return [cell for cell in moved if cell.verdict == "not reproduced"]

    def settled(self) -> bool:
        """Whether each score has an explanation that is unlikely to be chance.

        What a change gives by chance is taken to be uniform, and no further from a score than the finished
        ranking's mean is.
        """
        tried = len(self.measured) + len(self.estimated)
        certain: list[ScoreCheck] = []
        for change in self.measured:
            cells = self.explained(change)
            chance = math.prod(min(1, half_unit(cell) / abs(cell.difference or 1)) for cell in cells)
            certain += cells if tried * chance <= CHANCE else []
        return all(cell in certain for cell in self.scores if cell.verdict == "not reproduced")


def half_unit(cell: ScoreCheck) -> float:
    """Half a unit of a score's last published digit."""
    return 0.5 * 10.0**-cell.digits
