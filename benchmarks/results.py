"""What a run of the model benchmark found, as data: rows of latencies and of first calls."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hidet.cli.timing import Latency

from .first_call import FirstCall

REFERENCE_SYSTEM = "eager"
"""The system whose result the others are compared with."""

OUR_SYSTEM = "hidet"
"""The system that the ratio column is about."""

FROZEN_SYSTEM = "hidet-frozen"
"""hidet with weights that never change again (`docs/weights.md`): a line to compare ourselves with, not a peer."""

WHOLE_SYSTEM = "hidet.compile"
"""hidet without torch.compile and what that checks before each call, weights copied: what ONNX Runtime does."""

AUTOTUNED_SYSTEM = "inductor-max-autotune"

TUNED_SYSTEM = "hidet-tuned"
"""hidet after `TUNE_BUDGET` of tuning into an empty store, which is part of its first call."""

STORED_SYSTEM = "hidet-from-store"
"""hidet told to tune again with the store of `TUNED_SYSTEM`: nothing is left to measure."""

OWN_SYSTEMS = frozenset({OUR_SYSTEM, FROZEN_SYSTEM, WHOLE_SYSTEM, TUNED_SYSTEM, STORED_SYSTEM})
"""Those that are no peers."""

TUNE_BUDGET = "60s"

_LEAST_PEAK = 0.9
"""A row is called disturbed when the machine reached less than this part of its best FMA rate around it,"""

_MOST_SPREAD = 1.5
"""or when the median call of a system took more than this times its fastest one."""


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean of positive numbers; of none, NaN."""
    return statistics.geometric_mean(values) if values else float("nan")


@dataclass(frozen=True, slots=True)
class Row:
    """Latencies of one model with one number of threads.

    flops: of one call. latencies: by system. differences: largest difference from eager, over eager's largest value.
    reasons: why a system has no latency. peak: float operations a second that these threads reached at best in the
    whole run; peak_around: the lower of the two rates measured right before and right after this row.
    """

    model: str
    what: str
    threads: int
    flops: int
    latencies: Mapping[str, Latency]
    differences: Mapping[str, float]
    reasons: Mapping[str, str]
    peak: float
    peak_around: float

    @property
    def disturbed(self) -> bool:
        """Whether something else took part of the machine while this row was measured."""
        spread = max((latency.median / latency.fastest for latency in self.latencies.values()), default=1.0)
        return self.peak_around < _LEAST_PEAK * self.peak or spread > _MOST_SPREAD

    def part_of_peak(self, system: str) -> float:
        """Return which part of the FMA peak `system` used, between 0 and 1."""
        return self.flops / self.latencies[system].median / self.peak

    @property
    def ratio(self) -> float | None:
        """Our latency over the best peer's; below 1 is faster. None while either is missing."""
        return ratio_to_best_peer(self.latencies)


@dataclass(frozen=True, slots=True)
class FirstCallRow:
    """First calls of one model by system, one for each of `first_call.CACHES` that it has, and why some are missing."""

    model: str
    threads: int
    calls: Mapping[str, Sequence[FirstCall]]
    reasons: Mapping[str, str]


def geometric_means(rows: Sequence[Row], systems: Sequence[str]) -> dict[str, float]:
    """Return the geometric mean latency, in seconds, of each system that has every row."""
    return {
        system: geometric_mean([row.latencies[system].median for row in rows])
        for system in systems
        if rows and all(system in row.latencies for row in rows)
    }


def to_json(
    environment: Mapping[str, Any], rows: Sequence[Row], first_calls: Sequence[FirstCallRow], systems: Sequence[str]
) -> dict[str, Any]:
    """Return everything as plain data; times in seconds, rates in float operations a second."""
    by_threads = {row.threads: [other for other in rows if other.threads == row.threads] for row in rows}
    return {
        **environment,
        "rows": [
            {
                **asdict(row),
                "part_of_peak": {system: row.part_of_peak(system) for system in row.latencies},
                "ratio_to_best_peer": row.ratio,
                "disturbed": row.disturbed,
            }
            for row in rows
        ],
        "geometric_means": {
            str(threads): geometric_means(group, systems) for threads, group in sorted(by_threads.items())
        },
        "first_calls": [asdict(row) for row in first_calls],
    }


def ratio_to_best_peer(latencies: Mapping[str, Latency]) -> float | None:
    """Our latency, out of those by system, over the best peer's; None while either is missing."""
    peers = [latency.median for system, latency in latencies.items() if system not in OWN_SYSTEMS]
    if OUR_SYSTEM not in latencies or not peers:
        return None
    return latencies[OUR_SYSTEM].median / min(peers)


def live_to_frozen(rows: Sequence[Mapping[str, Latency]]) -> float | None:
    """Geometric mean of our latency over that with frozen weights, of the rows that have both; None without any."""
    ratios = [
        row[OUR_SYSTEM].median / row[FROZEN_SYSTEM].median for row in rows if {OUR_SYSTEM, FROZEN_SYSTEM} <= {*row}
    ]
    return geometric_mean(ratios) if ratios else None
