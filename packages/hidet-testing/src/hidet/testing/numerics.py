"""Whether a compiled result is right: measured against a float64 reference, with the eager result as the yardstick.

An output is right when, over all samples taken together (usually three seeds),

- rms(ours - reference) / rms(reference) <= 2 * the same of eager + u,
- max|ours - reference| / max|reference| <= 4 * the same of eager + 4u, with u the unit roundoff of the output's dtype,
- integer and bool elements equal eager's,
- NaN, +inf and -inf stand where eager has them; where it has them although the output's dtype holds the reference, as
  when f16 overflows on the way to a small result, a finite element is measured like all others.

Eager is the yardstick because a fixed tolerance is too loose for a short sum and too tight for a long one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.dtypes import from_numpy
from hidet.errors import HidetError

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One output of one run, three times, all of one shape.

    ours: the compiled result. eager: what the framework gives for the same inputs, of the same dtype (ml_dtypes for
    bfloat16). reference: the value computed from the same inputs and weights in float64; for integer and bool outputs
    it is not looked at.
    """

    ours: Array
    eager: Array
    reference: Array


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `check_output` found.

    name, dtype: the output and its element type. correct: whether every criterion holds.
    rms, eager_rms, rms_limit: relative root-mean-square error of ours, of eager, and the largest allowed one.
    peak, eager_peak, peak_limit: largest error over the largest reference value, likewise. The six are 0 for integer
    and bool outputs.
    problem: what is wrong, None when all is right.
    """

    name: str
    dtype: str
    correct: bool
    rms: float = 0.0
    eager_rms: float = 0.0
    rms_limit: float = 0.0
    peak: float = 0.0
    eager_peak: float = 0.0
    peak_limit: float = 0.0
    problem: str | None = None

    def __str__(self) -> str:
        if self.rms_limit == 0.0 and self.peak_limit == 0.0:
            figures = "equal to eager" if self.correct else ""
        else:
            figures = (
                f"rms {self.rms:.2e} (eager {self.eager_rms:.2e}, limit {self.rms_limit:.2e}), "
                f"max {self.peak:.2e} (eager {self.eager_peak:.2e}, limit {self.peak_limit:.2e})"
            )
        parts = [part for part in (figures, self.problem) if part]
        return f"{self.name} {self.dtype}: {'correct' if self.correct else 'WRONG'}: {'; '.join(parts)}"


def check_output(name: str, samples: Sequence[Sample], allowance: float = 0.0) -> Verdict:
    """Judge one output from its samples.

    name: what messages call the output. allowance: relative error besides, for an eager result that adds up in a better
    order than compiled code has to: once to the rms and four times to the largest error.
    Raises HidetError when there is no sample, or when a sample cannot be judged: its reference has another shape than
    eager's result, or is not finite where eager is.
    """
    if not samples:
        raise HidetError(f"output {name!r}: no samples to judge", hint="run the model for at least one seed")
    label = str(samples[0].eager.dtype)
    problem = next((found for sample in samples if (found := _mismatch(sample)) is not None), None)
    if problem is not None:
        return Verdict(name, label, correct=False, problem=problem)
    element = from_numpy(samples[0].eager.dtype)
    if not (element.is_float or element.is_complex):
        return Verdict(name, label, correct=True)
    for sample in samples:
        _require_usable_reference(name, sample)
    return _judge_errors(name, label, samples, allowance)


def _mismatch(sample: Sample) -> str | None:
    """What can be told without a tolerance: shape, dtype, integer values, places of NaN and inf."""
    import numpy as np

    ours, eager = sample.ours, sample.eager
    if ours.shape != eager.shape:
        return f"shape is {ours.shape}, eager's is {eager.shape}"
    if ours.dtype != eager.dtype:
        return f"dtype is {ours.dtype}, eager's is {eager.dtype}"
    element = from_numpy(eager.dtype)
    if not (element.is_float or element.is_complex):
        return _first_difference("value", ours, eager, np.not_equal(ours, eager))
    wide_ours, wide_eager = _widen(ours), _widen(eager)
    for part in (np.real, np.imag) if element.is_complex else (np.real,):
        a, b = part(wide_ours), part(wide_eager)
        wrong = (np.isnan(a) != np.isnan(b)) | ((np.isinf(a) | np.isinf(b)) & (a != b) & ~np.isnan(a))
        wrong &= ~_is_rescued(sample)
        found = _first_difference("NaN or inf", ours, eager, wrong)
        if found is not None:
            return found
    return None


def _is_rescued(sample: Sample) -> Array:
    """Where ours is finite and eager is not, although their dtype holds the reference."""
    import numpy as np

    ours, eager = _widen(sample.ours), _widen(sample.eager)
    if sample.reference.shape != eager.shape:
        return np.zeros(eager.shape, dtype=bool)
    with np.errstate(over="ignore"):
        held = _widen(sample.reference.astype(sample.eager.dtype))
    found: Array = np.isfinite(ours) & np.isfinite(held) & ~np.isfinite(eager)
    return found


def _is_measured(sample: Sample, result: Array) -> Array:
    """Where the error of ours or of eager counts."""
    import numpy as np

    finite: Array = np.isfinite(_widen(sample.eager))
    return finite if result is sample.eager else finite | _is_rescued(sample)


def _first_difference(what: str, ours: Array, eager: Array, wrong: Array) -> str | None:
    import numpy as np

    count = int(np.count_nonzero(wrong))
    if count == 0:
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{what} differs at {count} of {wrong.size} places, first at {place}: {ours[place]}, eager has {eager[place]}"
    )


def _require_usable_reference(name: str, sample: Sample) -> None:
    import numpy as np

    if sample.reference.shape != sample.eager.shape:
        raise HidetError(
            f"output {name!r}: the reference has shape {sample.reference.shape}, eager's result {sample.eager.shape}"
        )
    if bool(np.any(np.isfinite(_widen(sample.eager)) & ~np.isfinite(sample.reference))):
        raise HidetError(
            f"output {name!r}: the float64 reference is not finite where eager is",
            hint="choose inputs whose result float64 can hold",
        )


def _judge_errors(name: str, label: str, samples: Sequence[Sample], allowance: float) -> Verdict:
    unit = from_numpy(samples[0].eager.dtype).unit_roundoff
    eager_rms, eager_peak = _relative_errors([(sample.eager, sample) for sample in samples])
    rms, peak = _relative_errors([(sample.ours, sample) for sample in samples])
    rms_limit, peak_limit = 2 * eager_rms + unit + allowance, 4 * (eager_peak + unit + allowance)
    problems = []
    if not rms <= rms_limit:
        problems.append(f"rms error is {rms / rms_limit:.3g} times its limit")
    if not peak <= peak_limit:
        problems.append(f"largest error is {peak / peak_limit:.3g} times its limit, {_worst(samples)}")
    return Verdict(
        name=name,
        dtype=label,
        correct=not problems,
        rms=rms,
        eager_rms=eager_rms,
        rms_limit=rms_limit,
        peak=peak,
        eager_peak=eager_peak,
        peak_limit=peak_limit,
        problem="; ".join(problems) or None,
    )


def _relative_errors(pairs: Sequence[tuple[Array, Sample]]) -> tuple[float, float]:
    """Return (rms error over rms value, largest error over largest value), over all measured places of all samples."""
    import numpy as np

    squares, peak, value_squares, value_peak = 0.0, 0.0, 0.0, 0.0
    for result, sample in pairs:
        measured = _is_measured(sample, result)
        reference = sample.reference[measured]
        if reference.size == 0:
            continue
        error = np.abs(_widen(result)[measured] - reference)
        magnitude = np.abs(reference)
        squares += float(np.sum(error * error))
        value_squares += float(np.sum(magnitude * magnitude))
        peak = max(peak, float(error.max()))
        value_peak = max(value_peak, float(magnitude.max()))
    if peak == 0.0:
        return 0.0, 0.0
    # An all-zero reference has no scale: then any error at all counts as infinite.
    rms = float(np.sqrt(squares / value_squares)) if value_squares > 0.0 else float("inf")
    return rms, peak / value_peak if value_peak > 0.0 else float("inf")


def _worst(samples: Sequence[Sample]) -> str:
    """Name the place of the largest error."""
    import numpy as np

    def errors(sample: Sample) -> Array:
        error = np.zeros(sample.ours.shape)
        measured = _is_measured(sample, sample.ours)
        error[measured] = np.abs(_widen(sample.ours)[measured] - sample.reference[measured])
        return error

    index, sample = max(enumerate(samples), key=lambda item: float(errors(item[1]).max(initial=0.0)))
    place = tuple(int(i) for i in np.unravel_index(int(errors(sample).argmax()), sample.ours.shape))
    return (
        f"at {place} of sample {index}: {sample.ours[place]}, "
        f"eager has {sample.eager[place]}, reference {sample.reference[place]:.9g}"
    )


def _widen(array: Array) -> Array:
    import numpy as np

    wide: Array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return wide
