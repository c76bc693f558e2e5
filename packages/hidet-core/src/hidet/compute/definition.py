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
from typing import Any

from hidet import dtypes
from hidet.compute.routine import RoutineSpec, takes
from hidet.dims import Dim, DimExpr
from hidet.dtypes import DType
from hidet.errors import VerifyError, suggestion
from hidet.ir import build
from hidet.ir.expr import Access, Expr, ExprLike, Reduce, Var
from hidet.records import record


@record
class Operand:
    """A tensor named inside a definition; identity is the object. Subscripting reads an element."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]

    def __getitem__(self, indices: Expr | int | tuple[Expr | int, ...]) -> Access:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != len(self.shape):
            raise VerifyError(f"operand {self.name} has {len(self.shape)} axes but is read with {len(given)} indices")
        return Access(self, tuple(map(build.index, given)), self.dtype)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


CombineFn = Callable[[Sequence[Expr], Sequence[Expr]], tuple[Expr, ...]]
IdentityFn = Callable[[Sequence[DType]], tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class Combiner:
    """An associative, tuple-valued way of folding values.

    `identity(dtypes)` gives the neutral tuple, `combine(left, right)` folds two tuples; `left` comes earlier along the
    axis, which decides ties of arg-max. `numpy` names a ufunc that does the same to one value (None if there is none).
    """

    name: str
    identity: IdentityFn
    combine: CombineFn
    numpy: str | None = None


@record
class Compute:
    """`result[axes] = value` for every index; `axes` are fresh i64 variables, one an axis of `result`."""

    result: Operand
    axes: tuple[Var, ...]
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """Running fold along `axis`: `results[...]` at i folds `values` at 0..i (at 0..i-1 when `exclusive`).

    `values` are read at `axes`; with `reverse` the fold runs from the end.
    """

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
    from hidet.ir.visit import has_reduce

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
    """Fold `fn(*indices)` over all indices below `extents`; tuple-valued combiners return component `result`.

    An extent may be an i64 expression of the data; one below 1 is no index at all.
    """
    axes = fresh_axes(len(extents), "r")
    values = fn(*axes)
    values = values if isinstance(values, tuple) else (values,)
    return Reduce(combiner, axes, tuple(map(build.index, extents)), values, result, values[result].type)


def _lowest(dtype: DType) -> Expr:
    if dtype.kind == "bool":
        return build.const(False, dtype)
    return build.const(-float("inf") if dtype.is_float else dtype.min, dtype)


def _highest(dtype: DType) -> Expr:
    if dtype.kind == "bool":
        return build.const(True, dtype)
    return build.const(float("inf") if dtype.is_float else dtype.max, dtype)


def _single(name: str, numpy: str, identity: Callable[[DType], Expr], op: str) -> Combiner:
    return Combiner(
        name,
        lambda types: (identity(types[0]),),
        lambda a, b: (build.binary(op, a[0], b[0]),),
        numpy,
    )


SUM = _single("sum", "add", lambda d: build.const(0, d), "add")
PRODUCT = _single("prod", "multiply", lambda d: build.const(1, d), "mul")
MAX = _single("max", "maximum", _lowest, "max")
MIN = _single("min", "minimum", _highest, "min")
ALL = _single("all", "logical_and", lambda d: build.const(True, d), "land")
ANY = _single("any", "logical_or", lambda d: build.const(False, d), "lor")


def _pick_extreme(op: str) -> CombineFn:
    def combine(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
        """(value, index): the better value, the smaller index among equals; NaN beats every number."""
        better = build.binary(op, b[0], a[0])
        tie = build.logical_and(build.equal(a[0], b[0]), b[1] < a[1])
        take = build.binary("lor", better, tie)
        if a[0].dtype.is_float:
            a_nan, b_nan = build.unary("isnan", a[0]), build.unary("isnan", b[0])
            nan_take = build.logical_and(b_nan, build.binary("lor", build.unary("lnot", a_nan), b[1] < a[1]))
            take = build.binary("lor", build.logical_and(take, build.unary("lnot", a_nan)), nan_take)
        return build.select(take, b[0], a[0]), build.select(take, b[1], a[1])

    return combine


_LAST = dtypes.i64.max
ARGMAX = Combiner("argmax", lambda t: (_lowest(t[0]), build.const(_LAST, t[1])), _pick_extreme("gt"))
ARGMIN = Combiner("argmin", lambda t: (_highest(t[0]), build.const(_LAST, t[1])), _pick_extreme("lt"))


def _welford(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
    """(mean, sum of squared deviations, count), merged as in Chan et al., 1979."""
    count = a[2] + b[2]
    safe = build.maximum(count, 1)
    delta = b[0] - a[0]
    mean = a[0] + delta * (b[2] / safe)
    return mean, a[1] + b[1] + delta * delta * (a[2] * b[2] / safe), count


WELFORD = Combiner("welford", lambda t: tuple(build.const(0, d) for d in t), _welford)

COMBINERS = {c.name: c for c in (SUM, PRODUCT, MAX, MIN, ALL, ANY, ARGMAX, ARGMIN, WELFORD)}


def single(inputs: Sequence[Operand], stage: Stage) -> Definition:
    """A definition of one stage whose results are the outputs."""
    return Definition(tuple(inputs), (stage,), results_of(stage))


def number(value: ExprLike | DimExpr, dtype: DType) -> Expr:
    """A Python number, symbolic size or expression as an expression of `dtype`."""
    if isinstance(value, DimExpr):
        value = build.index(value)
    return build.cast(value, dtype) if isinstance(value, Expr) else build.const(value, dtype)
