"""Simulates how often groups of queries show a difference that is none, and how often one that is there.

    scripts/simulate_groups.py --samples 200

Values per query are those of two systems; queries are grouped as on the built-in sample, by 11 topics and
three times into thirds. The second system is equally good, or worse in one topic.
"""

from __future__ import annotations

import argparse

import numpy as np

from pipeline.core.records import BoolArray, Float64
from pipeline.metrics.paired import difference_tests, smallest_shown

TOPICS = (19, 12, 12, 11, 11, 9, 9, 9, 8, 8, 6)
LEVEL = 0.05


def groups_of(generator: np.random.Generator) -> list[BoolArray]:
    """Topics, and three random groupings into thirds; bool [queries] each."""
    queries = sum(TOPICS)
    labels = [np.repeat(np.arange(len(TOPICS)), TOPICS)]
    labels += [generator.permutation(np.arange(queries) % 3) for _ in range(3)]
    return [each == group for each in labels for group in range(each.max() + 1)]


def pair(generator: np.random.Generator, loss: float, inside: BoolArray) -> Float64:
    """float64 [queries, 1]: differences of nDCG-like values of two systems, a fifth of them ties."""
    ours, theirs = np.clip(generator.beta(2, 1.1, (2, len(inside))), 0, 1)
    tied = generator.random(len(inside)) < 0.2
    differences = np.where(tied, 0, (ours - theirs) / 2) + np.where(inside, loss, 0)
    return differences[:, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=300)
    samples = parser.parse_args().samples
    for loss in (0.0, 0.2, 0.4):
        generator = np.random.default_rng(7)
        any_shown, other_shown, found = 0, 0, 0
        for _ in range(samples):
            groups = groups_of(generator)
            worse = groups[3]
            smallest = smallest_shown([int(group.sum()) for group in groups], 1)
            differences = pair(generator, loss, worse)
            shown = difference_tests(differences, groups, smallest)[1][:, 0] < LEVEL
            apart = [row for row, group in enumerate(groups) if not (group & worse).any()]
            any_shown += bool(shown.any())
            other_shown += bool(shown[apart].any())
            found += bool(shown[3])
        shares = (f"{count / samples:.1%}" for count in (any_shown, other_shown, found))
        print(f"loss {loss}: any group shown, one without a loss, the topic:", *shares)


if __name__ == "__main__":
    main()
