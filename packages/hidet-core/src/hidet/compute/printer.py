"""Compute definitions as text, for dumps: what one operator means, index by index.

    y[i0, i1] = reduce("sum", [r0], [32], [a[i0, r0] * b[r0, i1]], 0)
    y[i0, i1] = scan("sum", [x[i0, i1]], axis=1)
    y[i0] = x[i0]
    for j0 in grid(16): y[index[j0]] = sum(y[index[j0]], update[j0]) if index[j0] >= 0
    values, order = sort(x, axis=1, descending=False)

What a formula uses several times stands on lines of its own before it, `t0 = ...`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hidet.compute.definition import Compute, Definition, Operand, Routine, Scan, Scatter, Stage, results_of
from hidet.ir.expr import Expr, Var
from hidet.ir.expr_text import Names, expr_text
from hidet.ir.shared_text import parted_text


def definition_lines(definition: Definition, names: Names) -> Iterator[str]:
    """The lines of all stages, in order. names: those of operands, which may be known from outside."""
    for stage in definition.stages:
        yield from stage_lines(stage, names)


def stage_lines(stage: Stage, names: Names) -> Iterator[str]:
    """The lines of one stage. Its operands get names in `names`; its axes are its own."""
    for result in results_of(stage):
        names(result)
    case: Callable[[Any, Names], Iterator[str]] = _CASES[type(stage)]
    yield from case(stage, names.inner())


def _parted(value: Expr, names: Names) -> tuple[list[str], str]:
    """The lines of what an expression uses several times, and its text over the names of these."""
    parts, text = parted_text(value, names)
    return [f"{name} = {part}" for name, part in parts], text


def _element(operand: Operand, indices: Sequence[Expr], names: Names) -> str:
    return f"{names(operand)}[{', '.join(expr_text(index, names) for index in indices)}]"


def _compute(stage: Compute, names: Names) -> Iterator[str]:
    target = _element(stage.result, stage.axes, names)
    lines, value = _parted(stage.value, names)
    yield from lines
    yield f"{target} = {value}"


def _scan(stage: Scan, names: Names) -> Iterator[str]:
    results = ", ".join(_element(result, stage.axes, names) for result in stage.results)
    parted = [_parted(value, names) for value in stage.values]
    yield from (line for lines, _ in parted for line in lines)
    values = ", ".join(value for _, value in parted)
    flags = "".join(f", {name}=True" for name in ("exclusive", "reverse") if getattr(stage, name))
    yield f'{results} = scan("{stage.combiner.name}", [{values}], axis={stage.axis}{flags})'


def _scatter(stage: Scatter, names: Names) -> Iterator[str]:
    lines, base = _parted(stage.base, names)
    yield from (*lines, f"{_element(stage.result, stage.base_axes, names)} = {base}")
    target, update = _element(stage.result, stage.indices, names), expr_text(stage.update, names)
    update = update if stage.combine is None else f"{stage.combine.name}({target}, {update})"
    condition = "" if stage.condition is None else f" if {expr_text(stage.condition, names)}"
    extents = ", ".join(map(str, stage.extents))
    yield f"for {_listed(stage.axes, names)} in grid({extents}): {target} = {update}{condition}"


def _routine(stage: Routine, names: Names) -> Iterator[str]:
    given = [*map(names, stage.operands), *(f"{name}={value!r}" for name, value in stage.attributes)]
    yield f"{_listed(stage.results, names)} = {stage.spec.name}({', '.join(given)})"


def _listed(things: Sequence[Var | Operand], names: Names) -> str:
    return ", ".join(map(names, things)) or "()"


_CASES: dict[type, Callable[[Any, Names], Iterator[str]]] = {
    Compute: _compute,
    Scan: _scan,
    Scatter: _scatter,
    Routine: _routine,
}
