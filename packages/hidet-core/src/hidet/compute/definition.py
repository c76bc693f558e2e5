"""Compute definitions: what one operator means, written once.

    definition := stages in order, reading inputs and results of earlier stages
    stage      := Compute    result[axes] = value                       value may contain Reduce nodes
                | Scan       scan along one axis: a prefix reduction
                | Scatter    copy of a base tensor with updates written at computed places
                | Routine    a target-neutral algorithm (sort, top-k, non-zero, …) and the `RoutineSpec` it is

Only `Compute` stages are fused by substitution. Shapes are tuples of `Dim`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from hidet.compute.routine import RoutineSpec, takes
from hidet.dims import Dim, DimExpr
from hidet.dtypes import DType
from hidet.errors import VerifyError, suggestion
from hidet.ir import build
from hidet.ir.combiner import ALL, ANY, ARGMAX, ARGMIN, COMBINERS, MAX, MIN, PRODUCT, SUM, WELFORD, Combiner
from hidet.ir.expr import Expr, ExprLike, Reduce, Var
from hidet.ir.operand import Operand
from hidet.ir.visit import has_reduce
from hidet.records import record


@record
class Compute:
    """`result[axes] = value` for every index; `axes` are fresh i64 variables, one an axis of `result`."""

    identity: ClassVar[Literal["fields"]] = "fields"
    result: Operand
    axes: tuple[Var, ...]
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """Scan along `axis`: `results[...]` at i is the reduction of `values` at 0..i (at 0..i-1 when `exclusive`).

    `values` are read at `axes`; with `reverse` the scan runs from the end.
    """

    identity: ClassVar[Literal["fields"]] = "fields"
    results: tuple[Operand, ...]
    axes: tuple[Var, ...]
    values: tuple[Expr, ...]
    axis: int
    combiner: Combiner
    exclusive: bool = False
    reverse: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """`result` = `base`, then for every index of the domain: result[indices] = combine(result[indices], update).

    `axes`/`extents` span the domain in row-major order. `combine` None replaces (the last update wins). Updates whose
    `condition` is false are skipped. Updates apply in domain order, so floating-point results are reproducible.

    is_distinct: no two updates meet at one place, so that they may apply in any order.
    """

    identity: ClassVar[Literal["fields"]] = "fields"
    result: Operand
    base: Expr
    base_axes: tuple[Var, ...]
    axes: tuple[Var, ...]
    extents: tuple[Dim, ...]
    indices: tuple[Expr, ...]
    update: Expr
    combine: Combiner | None = None
    condition: Expr | None = None
    is_distinct: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Routine:
    """An algorithm on whole operands, with attributes. VerifyError for what its spec does not have."""

    identity: ClassVar[Literal["fields"]] = "fields"
    spec: RoutineSpec
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    attributes: tuple[tuple[str, object], ...] = ()

    def __post_init__(self) -> None:
        spec = self.spec
        for what, names, given in (("operands", spec.operands, self.operands), ("results", spec.results, self.results)):
            if not takes(names, len(given)):
                raise VerifyError(f"routine {spec.name} has {what} ({', '.join(names)}), a stage gives it {len(given)}")
        known = dict(spec.attributes)
        for name, _ in self.attributes:
            if name not in known:
                raise VerifyError(f"routine {spec.name} has no attribute {name!r}", hint=suggestion(name, known))

    def attribute_values(self) -> dict[str, Any]:
        """All attributes of the spec by name; those that the stage does not give have their defaults."""
        return {**dict(self.spec.attributes), **dict(self.attributes)}


Stage = Compute | Scan | Scatter | Routine


@dataclass(frozen=True, slots=True)
class Fit:
    """`value` has to be a number of the integer type `dtype`: `what` says which argument of what is of that type."""

    value: Dim
    dtype: DType
    what: str


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """The meaning of an operator applied to `inputs`: stages in order; `outputs` are results of stages.

    equal: pairs of sizes that have to be equal although no index shows it. at_most: pairs of which the first must not
    exceed the second, in the same way. fits: numbers that kernels get in types that may be too narrow for them.
    """

    identity: ClassVar[Literal["fields"]] = "fields"
    inputs: tuple[Operand, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[Operand, ...] = field(default=())
    equal: tuple[tuple[Dim, Dim], ...] = ()
    at_most: tuple[tuple[Dim, Dim], ...] = ()
    fits: tuple[Fit, ...] = ()
    _injective: bool | None = field(default=None, init=False, repr=False)

    @property
    def is_injective(self) -> bool:
        """Whether each output is one `Compute` without reductions: such an operator fuses anywhere."""
        if self._injective is None:
            # Every pass asks this of every node, so the answer is kept.
            object.__setattr__(self, "_injective", _is_injective(self))
        return bool(self._injective)


def _is_injective(definition: Definition) -> bool:
    stages = definition.stages
    return len(stages) == len(definition.outputs) and all(
        isinstance(stage, Compute) and not has_reduce(stage.value) for stage in stages
    )


def results_of(stage: Stage) -> tuple[Operand, ...]:
    """The operands a stage defines."""
    return (stage.result,) if isinstance(stage, Compute | Scatter) else stage.results


def fresh_axes(rank: int, prefix: str = "i") -> tuple[Var, ...]:
    """New i64 index variables i0, i1, …"""
    return tuple(Var(f"{prefix}{n}", build.INDEX) for n in range(rank))


def compute(name: str, shape: Sequence[Dim], fn: Callable[..., Expr]) -> Compute:
    """A stage whose element at the given indices is `fn(*indices)`; its dtype is that of the returned expression."""
    axes = fresh_axes(len(shape))
    value = fn(*axes)
    return Compute(Operand(name, value.dtype, tuple(shape)), axes, value)


def reduce(
    combiner: Combiner, extents: Sequence[Dim | Expr], fn: Callable[..., Expr | tuple[Expr, ...]], result: int = 0
) -> Reduce:
    """Reduce `fn(*indices)` over all indices below `extents`; tuple-valued combiners return component `result`.

    An extent may be an i64 expression of the data; one below 1 is no index at all.
    """
    axes = fresh_axes(len(extents), "r")
    values = fn(*axes)
    values = values if isinstance(values, tuple) else (values,)
    return Reduce(combiner, axes, tuple(map(build.index, extents)), values, result, values[result].type)


def single(inputs: Sequence[Operand], stage: Stage) -> Definition:
    """A definition of one stage whose results are the outputs."""
    return Definition(tuple(inputs), (stage,), results_of(stage))


def number(value: ExprLike | DimExpr, dtype: DType) -> Expr:
    """A Python number, symbolic size or expression as an expression of `dtype`."""
    if isinstance(value, DimExpr):
        value = build.index(value)
    return build.cast(value, dtype) if isinstance(value, Expr) else build.const(value, dtype)


__all__ = [
    "ALL",
    "ANY",
    "ARGMAX",
    "ARGMIN",
    "COMBINERS",
    "MAX",
    "MIN",
    "PRODUCT",
    "SUM",
    "WELFORD",
    "Combiner",
    "Compute",
    "Definition",
    "Fit",
    "Operand",
    "Routine",
    "Scan",
    "Scatter",
    "Stage",
    "compute",
    "fresh_axes",
    "number",
    "reduce",
    "results_of",
    "single",
]
