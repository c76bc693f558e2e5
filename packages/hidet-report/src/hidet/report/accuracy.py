"""How far kernels are from float64, each on the inputs that it really had, and all of them since the model's inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hidet.dtypes import DType
from hidet.report.accuracy_text import accuracy_text


@dataclass(frozen=True, slots=True)
class Errors:
    """Differences of an array from a reference: root mean square, and the largest, both relative to the reference's."""

    rms: float
    peak: float


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """A result of a kernel.

    title: what it computes. kernel, node, line: as in a profile. dtype: of the result.
    own: errors of the kernel on the inputs that it had; own_plain: of the same operators by numpy, in the types of the
    model, on these inputs; both None where there is no reference. limit: what is allowed. total, total_plain: errors
    since the inputs of the model; None inside of branches and loops, where the worst run of the kernel counts. problem:
    what is wrong, "" where nothing is.
    """

    title: str
    kernel: str
    node: str
    line: str
    dtype: str
    own: Errors | None = None
    own_plain: Errors | None = None
    limit: Errors | None = None
    total: Errors | None = None
    total_plain: Errors | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What a check of a compiled model has found.

    rows: results of kernels in the order in which they were computed. repro: the script that was written for the first
    wrong kernel; "" where none was.
    """

    model: str
    rows: tuple[AccuracyRow, ...]
    repro: str = ""

    @property
    def first_wrong(self) -> AccuracyRow | None:
        """The first kernel that is further from float64 than rounding explains; None where none is."""
        return next((row for row in self.rows if row.problem), None)

    @property
    def is_right(self) -> bool:
        """Whether every kernel that could be checked is right."""
        return self.first_wrong is None

    @property
    def verdict(self) -> str:
        """In a sentence."""
        wrong = [row for row in self.rows if row.problem]
        checked = sum(row.own is not None for row in self.rows)
        if not wrong:
            others = len(self.rows) - checked
            rest = f", {others} could not be checked" if others else ""
            return f"{self.model}: all {checked} results are as near to float64 as rounding allows{rest}"
        first = wrong[0]
        place = " ".join(part for part in (first.node, first.line) if part)
        what = f"first {first.kernel} ({place}): {first.problem}"
        return f"{self.model}: {len(wrong)} of {checked} results are wrong, {what}"

    def as_json(self) -> dict[str, Any]:
        """Numbers and texts alone."""
        return {**asdict(self), "is_right": self.is_right, "verdict": self.verdict}

    def __str__(self) -> str:
        return accuracy_text(self)


Array = np.ndarray[Any, np.dtype[Any]]


def errors_of(found: Array, reference: Array) -> Errors:
    """Of elements that are finite in the reference."""
    wide = np.complex128 if np.iscomplexobj(reference) else np.float64
    ours, right = found.astype(wide), reference.astype(wide)
    finite = np.isfinite(right) & np.isfinite(ours)
    if not finite.any():
        return Errors(0.0, 0.0)
    difference, size = np.abs(ours[finite] - right[finite]), np.abs(right[finite])
    rms, peak = math.sqrt(float(np.mean(size**2))), float(size.max())
    if peak == 0.0:
        return Errors(float(np.sqrt(np.mean(difference**2))), float(difference.max()))
    return Errors(math.sqrt(float(np.mean(difference**2))) / rms, float(difference.max()) / peak)


def limit_of(plain: Errors, dtype: DType) -> Errors:
    """What rounding explains, where plain arithmetic is so far off: twice its root mean square and four times its
    largest error, and a unit of rounding besides."""
    unit = float(np.finfo(np.float64).eps) / 2 if dtype.nbytes >= 8 else 2.0 ** -(_FRACTION.get(dtype.short, 23) + 1)
    return Errors(2 * plain.rms + unit, 4 * (plain.peak + unit))


_FRACTION: Mapping[str, int] = {"f32": 23, "c64": 23, "f16": 10, "bf16": 7}
"""Bits behind the point, by the short name of a type."""


def problem_of(found: Array, reference: Array, plain: Array, dtype: DType) -> tuple[Errors, Errors, Errors, str]:
    """Errors of what was found and of plain arithmetic, the limit, and what is wrong in words."""
    own, other = errors_of(found, reference), errors_of(plain, reference)
    if not (dtype.is_float or dtype.is_complex):
        count = int((found != plain).sum())
        problem = f"{count} of {found.size} elements differ" if count else ""
        return own, other, Errors(0.0, 0.0), problem
    limit = limit_of(other, dtype)
    wide = plain.astype(np.complex128 if dtype.is_complex else np.float64)
    ours = found.astype(wide.dtype)
    misplaced = int(((np.isnan(ours) != np.isnan(wide)) | (np.isinf(ours) != np.isinf(wide))).sum())
    if misplaced:
        return own, other, limit, f"{misplaced} of {found.size} elements are NaN or infinite, or ought to be"
    if own.rms > limit.rms:
        return own, other, limit, f"RMS error {own.rms:.1e}, rounding explains {limit.rms:.1e}"
    if own.peak > limit.peak:
        return own, other, limit, f"largest error {own.peak:.1e}, rounding explains {limit.peak:.1e}"
    return own, other, limit, ""
