"""Running cases: compiled against eager, and against float64 where the two differ."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hidet.runtime.compiled import CompileReport
from hidet.testing import suite
from hidet.torch import compat
from hidet.torch.reports import collect_reports
from hidet.torch.suite.cases import Outcome, Selection
from hidet.torch.suite.compare import (
    FEWEST_RUNS,
    Seen,
    distribution_problem,
    is_noise,
    is_same,
    kind_problem,
    stride_problem,
    value_problem,
)
from hidet.torch.suite.observe import ClearingNewMemory, NotDifferentiableError, draws, filling_new_memory, observe
from hidet.torch.suite.programs import Group, Program

SEEDS, MOST_SEEDS, FEWEST = 3, 24, 64
"""How often values are drawn anew, to be judged together: more often where the smallest result then has fewer than
FEWEST elements, because of few rounding errors eager's may happen to be none."""

DRAWS = 8
"""With how many seeds a program is run that may be random."""

RUNS, ELEMENTS = 64, 4096
"""Of a random program: how often it is run at most, and how many elements suffice, of FEWEST_RUNS runs."""


class Compiler:
    """Compiles functions with a backend, each once."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._made: dict[Any, Any] = {}

    def __call__(self, function: Any) -> Any:
        if function not in self._made:
            self._made[function] = torch.compile(function, backend=self._backend, dynamic=False)
        return self._made[function]


def eager(function: Any) -> Any:
    """What compiles nothing."""
    return function


def work(path: Path, selection: Selection) -> None:
    """Run the cases that the journal does not hold yet."""
    torch.set_num_threads(1)
    journal = suite.Journal(path)
    with warnings.catch_warnings():
        # Those of torch's tables, where samples are made.
        warnings.simplefilter("ignore")
        for group in selection.groups():
            run_group(group, selection, journal)


def run_group(group: Group, selection: Selection, journal: suite.Journal) -> None:
    """Run the cases of a group. One whose samples cannot be made is refused as a whole."""
    whole = f"{group.name}:*"
    if whole in journal.done:
        return
    journal.start(whole)
    samples: dict[int, Sequence[Program]] = {}

    def sample(number: int, seed: int) -> Program | None:
        if seed not in samples:
            samples[seed] = group.programs(selection.seed + seed)
        return samples[seed][number] if number < len(samples[seed]) else None

    try:
        sample(0, 0)
    except Exception as error:  # noqa: BLE001 - whatever torch's own table raises
        journal.end(asdict(Outcome(whole, "refused", first_lines(error))))
        return
    for number in selection.numbers(group, len(samples[0])):
        name = f"{group.name}:{number}"
        if name not in journal.done:
            journal.start(name)
            begin = time.perf_counter()
            outcome = run_case(name, partial(sample, number), group.direction == "backward")
            journal.end(asdict(replace(outcome, seconds=round(time.perf_counter() - begin, 3))))


def run_case(name: str, sample: Callable[[int], Program | None], backward: bool) -> Outcome:
    """Run one case. sample: of a seed, with other values and else the same; None where there is none."""
    with compat.tracing_everything(), warnings.catch_warnings():
        # What is left to torch is in the reports.
        warnings.simplefilter("ignore")
        return _run_case(name, sample, backward)


def _run_case(name: str, sample: Callable[[int], Program | None], backward: bool) -> Outcome:
    program = sample(0)
    assert program is not None
    torch.compiler.reset()
    try:
        expected = observe(program, eager, backward=backward)
    except NotDifferentiableError:
        return Outcome(name, "refused", "no gradient")
    except Exception as error:  # noqa: BLE001 - whatever eager mode refuses
        return Outcome(name, "refused", first_lines(error))
    compiler = Compiler("hidet")
    compat.forget_graph_breaks()
    with collect_reports() as reports:
        try:
            found = observe(program, compiler, backward=backward)
        except Exception as error:  # noqa: BLE001 - a failure of any kind is an outcome
            result = "torch" if _fails_in_torch(program, backward) else "error"
            return Outcome(name, result, f"{type(error).__name__}: {first_lines(error)}")
    left = tuple(sorted({*_left(reports), *map(_short_break, compat.graph_breaks())}))
    if is_same(found, expected):
        return Outcome(name, "right", left=left)
    try:
        result, reason = _judge(sample, compiler, found, expected, backward)
    except Exception as error:  # noqa: BLE001 - with other values, or in torch's own tracing
        result, reason = "error", f"while judged, {type(error).__name__}: {first_lines(error)}"
    return Outcome(name, result, reason, left)


def _judge(
    sample: Callable[[int], Program | None], compiler: Compiler, found: list[Any], expected: list[Any], backward: bool
) -> tuple[str, str]:
    """The result and reason of a case whose results are not equal."""
    program = sample(0)
    assert program is not None
    problem = kind_problem(found, expected)
    if problem is None and is_unwritten(program, backward):
        problem = stride_problem(found, expected)
        return ("wrong", problem) if problem else ("shape", "")
    # Few numbers may be drawn alike.
    again = (observe(program, eager, backward=backward, seed=seed) for seed in range(1, DRAWS))
    if draws(program, backward=backward) and not all(is_same(other, expected) for other in again):
        problem = problem or _compare_random(program, compiler, backward)
        return ("wrong", problem) if problem else ("statistics", "")
    result, problem = ("wrong", problem) if problem else _compare_values(sample, compiler, backward)
    if result != "wrong":
        return result, ""
    traced = Compiler("aot_eager")
    torch.compiler.reset()
    theirs = observe(program, traced, backward=backward)
    fails = kind_problem(theirs, expected) or _compare_values(sample, traced, backward)[0] == "wrong"
    return ("torch" if fails else "wrong"), problem


def is_unwritten(program: Program, backward: bool) -> bool:
    """Whether a program returns memory as it gets it."""
    with filling_new_memory():
        filled = observe(program, eager, backward=backward)
    with ClearingNewMemory():
        cleared = observe(program, eager, backward=backward)
    return not is_same(filled, cleared)


def _compare_values(sample: Callable[[int], Program | None], compiler: Compiler, backward: bool) -> tuple[str, str]:
    """The result and reason of values that are not equal to eager's."""
    samples: list[Seen] = []
    for seed in range(MOST_SEEDS):
        program = sample(seed)
        if program is None or (seed >= SEEDS and sum(map(_fewest_elements, samples)) >= FEWEST):
            break
        try:
            expected = observe(program, eager, backward=backward)
        except Exception:  # noqa: BLE001 - other values may be refused
            continue
        found = observe(program, compiler, backward=backward)
        if samples and kind_problem(expected, samples[0].eager):
            continue
        problem = kind_problem(found, expected)
        if problem is not None:
            return "wrong", problem
        wide = in_float64(program, expected, backward)
        has_doubles = any(isinstance(leaf, torch.Tensor) and leaf.dtype in _DOUBLES for leaf in expected)
        narrow = _converted(program, expected, backward, torch.float32) if has_doubles else None
        samples.append(Seen(found, expected, wide, narrow))
    problem = value_problem(samples)
    if problem is None:
        return "right", ""
    return ("noise" if is_noise(samples) else "wrong"), problem


_DOUBLES = {torch.float64, torch.complex128}
"""Types whose results are judged by what float32 gives, too."""

_NARROW = {torch.float32, torch.complex64}
"""Types of results for which float64 holds more digits."""


def _fewest_elements(seen: Seen) -> int:
    sizes = [leaf.numel() for leaf in seen.eager if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return min(filter(None, sizes), default=FEWEST)


NEARLY = 1e-4
"""How far results of integers that became float64 may be from those of the integers, to be the same numbers."""


def in_float64(program: Program, expected: Sequence[Any], backward: bool) -> Sequence[Any] | None:
    """What eager mode gives in float64; None where the program does not run in it.

    Operators that take float32 for integers, whatever the default type is, are given float64 in place of the integers.
    """
    wide = _converted(program, expected, backward, torch.float64)
    if wide is None or all(leaf.dtype not in _NARROW for leaf in wide if isinstance(leaf, torch.Tensor)):
        return wide
    wider = _converted(program, expected, backward, torch.float64, integers=True)
    if wider is None:
        return wide
    return [b if _holds_more(a, b) else a for a, b in zip(wide, wider, strict=True)]


def _holds_more(leaf: Any, wider: Any) -> bool:
    """Whether `wider` has the numbers of `leaf` in a type that holds more digits."""
    if not isinstance(leaf, torch.Tensor) or leaf.dtype not in _NARROW or not isinstance(wider, torch.Tensor):
        return False
    if wider.dtype not in _DOUBLES or wider.shape != leaf.shape:
        return False
    return torch.allclose(leaf.to(wider.dtype), wider, rtol=NEARLY, atol=0.0, equal_nan=True)


def _converted(
    program: Program, expected: Sequence[Any], backward: bool, dtype: torch.dtype, *, integers: bool = False
) -> Sequence[Any] | None:
    """What eager mode gives in another dtype; None where the program does not run in it."""
    try:
        found = observe(program, eager, backward=backward, dtype=dtype, integers=integers)
    except Exception:  # noqa: BLE001 - the operator may not take it
        return None
    return found if len(found) == len(expected) else None


def _compare_random(program: Program, compiler: Compiler, backward: bool) -> str | None:
    ours: list[Sequence[Any]] = []
    theirs: list[Sequence[Any]] = []
    for seed in range(RUNS):
        ours.append(observe(program, compiler, backward=backward, seed=seed))
        theirs.append(observe(program, eager, backward=backward, seed=RUNS + seed))
        sizes = [leaf.numel() for leaf in theirs[0] if isinstance(leaf, torch.Tensor) and leaf.numel()]
        if not sizes or (len(ours) >= FEWEST_RUNS and len(ours) * min(sizes) >= ELEMENTS):
            break
    return distribution_problem(ours, theirs)


def _fails_in_torch(program: Program, backward: bool) -> bool:
    torch.compiler.reset()
    try:
        observe(program, Compiler("aot_eager"), backward=backward)
    except Exception:  # noqa: BLE001 - a failure of any kind
        return True
    return False


def _left(reports: Sequence[CompileReport]) -> list[str]:
    names = [name for report in reports for kind, name in report.nodes.names if kind == "eager"]
    return [name.removeprefix("torch:") for name in names]


def _short_break(reason: str) -> str:
    return f"(dynamo: {reason.splitlines()[0][:60]})"


def first_lines(error: BaseException) -> str:
    """An error in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:300]
