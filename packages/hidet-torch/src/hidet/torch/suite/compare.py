"""Whether what was seen of a compiled program is what eager mode shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

import torch
from hidet.testing.numerics import Sample, Verdict, check_output
from hidet.torch.tensors import as_numpy


def array(tensor: torch.Tensor) -> Any:
    """The elements of a tensor of any layout."""
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    # numpy has no complex numbers of two f16.
    dense = dense.to(torch.complex64) if dense.dtype is torch.complex32 else dense
    # Also of a conjugate, a negative, or zeros that torch has not written to memory.
    return as_numpy(torch.empty(dense.shape, dtype=dense.dtype).copy_(dense.detach()))


def is_same(ours: Sequence[Any], eager: Sequence[Any]) -> bool:
    """Whether all is equal, to the bit but for the payload of NaN."""
    return len(ours) == len(eager) and all(map(_is_same, ours, eager))


def _is_same(ours: Any, eager: Any) -> bool:
    if isinstance(ours, torch.Tensor) != isinstance(eager, torch.Tensor):
        return False
    if not isinstance(eager, torch.Tensor):
        return type(ours) is type(eager) and (ours == eager or (ours != ours and eager != eager))
    if ours.shape != eager.shape or ours.dtype != eager.dtype:
        return False
    a, b = array(ours), array(eager)
    return bool(((a == b) | ((a != a) & (b != b))).all())


def kind_problem(ours: Sequence[Any], eager: Sequence[Any]) -> str | None:
    """What differs in number, type, dtype and shape."""
    if len(ours) != len(eager):
        return f"{len(ours)} results, eager has {len(eager)}"
    for number, (a, b) in enumerate(zip(ours, eager, strict=True)):
        if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor) or not isinstance(a, torch.Tensor):
            if type(a) is not type(b):
                return f"result {number} is a {type(a).__name__}, eager's is a {type(b).__name__}"
        elif (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"result {number} is {a.dtype} of {tuple(a.shape)}, eager's is {b.dtype} of {tuple(b.shape)}"
    return None


def stride_problem(ours: Sequence[Any], eager: Sequence[Any]) -> str | None:
    """What differs in strides that lead from one element to another, among results of the same kind."""
    for number, (a, b) in enumerate(zip(ours, eager, strict=True)):
        if isinstance(b, torch.Tensor) and b.layout is torch.strided and b.numel():
            axes = [axis for axis, extent in enumerate(b.shape) if extent > 1]
            if any(a.stride(axis) != b.stride(axis) for axis in axes):
                return f"result {number} has strides {a.stride()}, eager's has {b.stride()}"
    return None


@dataclass(frozen=True, slots=True)
class Seen:
    """The same program compiled, in eager mode, and in eager mode with all numbers in float64 and, where it has
    results of float64, in float32; None where it does not run so."""

    ours: Sequence[Any]
    eager: Sequence[Any]
    wide: Sequence[Any] | None = None
    narrow: Sequence[Any] | None = None


def value_problem(samples: Sequence[Seen]) -> str | None:
    """What differs by more than `hidet.testing.numerics` allows, over samples of the same kind taken together.

    Where there is no float64 reference, eager's result stands in its place.
    """
    for number, leaf in enumerate(samples[0].eager):
        if not isinstance(leaf, torch.Tensor):
            if any(not _is_same(seen.ours[number], seen.eager[number]) for seen in samples):
                return f"result {number} is {samples[0].ours[number]!r}, eager's is {leaf!r}"
            continue
        verdict = _verdict(samples, number)
        if not verdict.correct:
            return str(verdict)
    return None


def _verdict(samples: Sequence[Seen], number: int) -> Verdict:
    return check_output(f"result {number}", [_sample(seen, number) for seen in samples])


def is_noise(samples: Sequence[Seen]) -> bool:
    """Whether eager's numbers have no right digit in any result that `value_problem` finds wrong.

    Where a gradient is the difference of equal numbers, nothing can be said about another order of additions.
    """
    numbers = [number for number, leaf in enumerate(samples[0].eager) if isinstance(leaf, torch.Tensor)]
    wrong = [verdict for verdict in (_verdict(samples, number) for number in numbers) if not verdict.correct]
    return bool(wrong) and all(verdict.eager_rms >= 1 for verdict in wrong)


def _sample(seen: Seen, number: int) -> Sample:
    ours, eager = array(seen.ours[number]), array(seen.eager[number])
    exact = eager.astype(numpy.complex128 if eager.dtype.kind == "c" else numpy.float64)
    wide, narrow = (_like(eager, found, number) for found in (seen.wide, seen.narrow))
    if eager.dtype == exact.dtype and narrow is not None:
        # float64 is the reference of itself: how far it is off is how far float32 is, in units of the last place.
        finite = numpy.isfinite(exact) & numpy.isfinite(narrow)
        units = numpy.finfo(numpy.float64).eps / numpy.finfo(numpy.float32).eps
        return Sample(ours, exact + numpy.where(finite, narrow - exact, 0.0) * units, exact)
    if wide is not None:
        # What only float64 cannot hold, or only eager can, is compared with eager's.
        exact = numpy.where(numpy.isfinite(wide) | ~numpy.isfinite(exact), wide.astype(exact.dtype), exact)
    return Sample(ours, eager, exact)


def _like(eager: Any, found: Sequence[Any] | None, number: int) -> Any:
    """Result `number` of a run that may have none, or none of eager's shape."""
    leaf = None if found is None else found[number]
    return array(leaf) if isinstance(leaf, torch.Tensor) and leaf.shape == eager.shape else None


def distribution_problem(ours: Sequence[Sequence[Any]], eager: Sequence[Sequence[Any]]) -> str | None:
    """Whether many runs of a random program are told apart by the Kolmogorov-Smirnov distance of their elements."""
    problem = kind_problem(ours[0], eager[0])
    if problem is not None:
        return problem
    for number, leaf in enumerate(eager[0]):
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            distance = _distance_in_units([run[number] for run in ours], [run[number] for run in eager])
            limit = _limit([run[number] for run in eager])
            if distance > limit:
                return f"result {number}: distributions differ by {distance:.2f} units, more than {limit:.2f}"
    return None


LEAST_LIKELY = 2.5
"""Equal distributions are farther apart than this, in units of the square root of the number of elements, in one of
10^5, where elements are independent."""

INDEPENDENT = 1.2
"""Nor are they this far apart in the mean of many comparisons, in the same units."""

LEAST_LIKELY_BY_MEAN = 5.5
"""As LEAST_LIKELY in units of that mean, of a distance that is normal."""

SPLITS, FEWEST_RUNS = 20, 8
"""How often runs are split to see how far apart equal distributions are, and of how many runs that tells something."""


def _distance_in_units(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> float:
    """How far apart two lists of runs are, in units that hold for independent elements."""
    first, second = (numpy.sort(_elements(runs)) for runs in (a, b))
    return float(_distance(first, second) * (first.size * second.size / (first.size + second.size)) ** 0.5)


def _limit(runs: Sequence[torch.Tensor]) -> float:
    """How far from these runs of a program others of it are at most, in such units. Halves of the runs tell whether the
    elements of one are independent: a channel that is dropped as a whole is one draw, whatever its size."""
    if len(runs) < FEWEST_RUNS:
        return LEAST_LIKELY
    generator = numpy.random.default_rng(0)
    orders = [generator.permutation(len(runs)) for _ in range(SPLITS)]
    halves = [([runs[i] for i in order[::2]], [runs[i] for i in order[1::2]]) for order in orders]
    mean = sum(_distance_in_units(*half) for half in halves) / SPLITS
    return LEAST_LIKELY if mean < INDEPENDENT else LEAST_LIKELY_BY_MEAN * mean


def _elements(tensors: Sequence[torch.Tensor]) -> Any:
    flat = numpy.concatenate([array(tensor).reshape(-1) for tensor in tensors])
    wide = flat.astype(numpy.complex128 if flat.dtype.kind == "c" else numpy.float64)
    return numpy.nan_to_num(wide.real if wide.dtype.kind == "c" else wide)


def _distance(a: Any, b: Any) -> float:
    places = numpy.concatenate([a, b])
    return float(
        numpy.abs(
            numpy.searchsorted(a, places, side="right") / a.size - numpy.searchsorted(b, places, side="right") / b.size
        ).max()
    )
