"""Hypothesis strategies for small thread-IR programs that are valid, end, and mean the same wherever they run.

Indices stay inside their arrays, divisors are not zero, i64 arithmetic does not overflow, and no value is read before
it is written, so that a target may be compared with the interpreter. Needs hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.types import BufferType, PointerType, Type, VectorType, with_lanes

# Elements of every array a program gets; indices are reduced modulo this.
ARRAY_ELEMENTS = 16
LANES = 4
SCALARS = (dtypes.f32, dtypes.f64, dtypes.i32, dtypes.i64, dtypes.boolean)
_LOCALS: tuple[Type, ...] = (*SCALARS, VectorType(dtypes.f32, LANES), VectorType(dtypes.boolean, LANES))
_LOOP_KINDS: tuple[s.LoopKind, ...] = ("serial", "unroll")
_FLOAT_UNARY = ("neg", "abs", "sqrt", "floor", "ceil", "trunc", "round")
_FLOAT_BINARY = ("add", "sub", "mul", "div", "min", "max", "copysign")
_INT_BINARY = ("add", "sub", "mul", "min", "max", "and", "or", "xor")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
# Leaves of an i64 expression are below 2^7; a tree of depth 3 multiplies at most 8 of them.
_LEAF_BOUND = 100
_DEPTH = 3


@dataclass(frozen=True)
class Scope:
    """What an expression may mention: values by type, and memory.

    values: locals, parameters and indices. assignable: the locals among them. memory: pointers to ARRAY_ELEMENTS
    elements and buffers, all written. can_leave: the innermost loop can be left.
    """

    values: tuple[e.Var, ...]
    assignable: tuple[e.Var, ...]
    memory: tuple[e.Var, ...]
    can_leave: bool = False

    def of_type(self, type_: Type) -> list[e.Var]:
        """The values of one type."""
        return [var for var in self.values if var.type == type_]


@st.composite
def modules(draw: st.DrawFn) -> Module:
    """A module whose entry takes `arguments()`: one kernel, launched over a grid of one or two axes."""
    arrays = tuple(e.Var(f"{t.short}s", PointerType(t)) for t in (dtypes.f32, dtypes.f64, dtypes.i32, dtypes.i64))
    n, x = e.Var("n", dtypes.i64), e.Var("x", dtypes.f32)
    grid = tuple(e.Var(name, dtypes.i64) for name in draw(st.sampled_from([("i",), ("i", "j")])))
    scope = Scope((n, x, *grid), (), arrays)
    body = draw(_blocks(scope, budget=5))
    kernel = Function("kernel", (*arrays, n, x), body, "kernel", grid)
    outer = tuple(e.Var(var.name, var.type) for var in kernel.params)
    extents = tuple(build.index(draw(st.integers(1, 3))) for _ in grid)
    launch = s.Launch("kernel", extents, outer, draw(st.none() | st.just(build.index(1))))
    return Module((kernel, Function("main", outer, launch, "host")), "main")


def arguments(seed: int) -> list[Any]:
    """Arguments for the entry of a module from `modules`; equal seeds give equal ones, in fresh memory."""
    rng = np.random.default_rng(seed)
    floats = [rng.uniform(-4, 4, ARRAY_ELEMENTS).round(2).astype(t) for t in (np.float32, np.float64)]
    ints = [rng.integers(-_LEAF_BOUND, _LEAF_BOUND, ARRAY_ELEMENTS, dtype=t) for t in (np.int32, np.int64)]
    return [*floats, *ints, int(rng.integers(0, ARRAY_ELEMENTS)), np.float32(rng.uniform(-4, 4))]


@st.composite
def expressions(draw: st.DrawFn, type_: Type, scope: Scope, depth: int = _DEPTH) -> e.Expr:
    """An expression of scalar or vector type over `scope`."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        leaf: e.Expr = draw(_leaves(type_, scope))
        return leaf
    lanes = type_.lanes if isinstance(type_, VectorType) else 1
    dtype = type_.dtype if isinstance(type_, VectorType) else type_
    assert isinstance(dtype, DType)

    def part(of: Type) -> e.Expr:
        made: e.Expr = draw(expressions(of, scope, depth - 1))
        return made

    def select() -> e.Expr:
        condition = part(with_lanes(dtypes.boolean, draw(st.sampled_from([1, lanes]))))
        return e.Select(condition, part(type_), part(type_), type_)

    choices: list[Callable[[], e.Expr]] = [select]
    if dtype.kind == "bool":
        choices += [lambda: _comparison(draw, lanes, scope, depth), lambda: e.Unary("lnot", part(type_), type_)]
        choices += [lambda: e.Binary(draw(st.sampled_from(["land", "lor"])), part(type_), part(type_), type_)]
    elif dtype.is_float:
        choices += [lambda: e.Binary(draw(st.sampled_from(_FLOAT_BINARY)), part(type_), part(type_), type_)]
        choices += [lambda: e.Unary(draw(st.sampled_from(_FLOAT_UNARY)), part(type_), type_)]
        other = dtypes.f64 if dtype is dtypes.f32 else dtypes.f32
        choices += [lambda: e.Cast(part(with_lanes(other, lanes)), type_)]
        choices += [lambda: e.Cast(part(with_lanes(dtypes.i32, lanes)), type_)]
    else:
        choices += [lambda: e.Binary(draw(st.sampled_from(_INT_BINARY)), part(type_), part(type_), type_)]
        choices += [lambda: _division(draw, part(type_), type_), lambda: e.Unary("neg", part(type_), type_)]
    if lanes > 1:
        choices.append(lambda: e.Broadcast(part(dtype), with_lanes(dtype, lanes)))
        choices.append(lambda: _shuffle(draw, part(type_), part(type_)))
    elif dtype is dtypes.f32:
        choices.append(lambda: e.Extract(part(VectorType(dtype, LANES)), draw(st.integers(0, LANES - 1)), dtype))
    choice: Callable[[], e.Expr] = draw(st.sampled_from(choices))
    return choice()


def _shuffle(draw: st.DrawFn, a: e.Expr, b: e.Expr) -> e.Expr:
    both = st.integers(0, 2 * a.lanes - 1)
    return build.shuffle(a, b, draw(st.lists(both, min_size=a.lanes, max_size=a.lanes)))


def _comparison(draw: st.DrawFn, lanes: int, scope: Scope, depth: int) -> e.Expr:
    of = with_lanes(draw(st.sampled_from([dtypes.f32, dtypes.i64] if lanes == 1 else [dtypes.f32])), lanes)
    a, b = (draw(expressions(of, scope, depth - 1)) for _ in range(2))
    return e.Binary(draw(st.sampled_from(_COMPARISONS)), a, b, with_lanes(dtypes.boolean, lanes))


def _division(draw: st.DrawFn, a: e.Expr, type_: Type) -> e.Expr:
    """Division by a constant that is neither 0 nor -1, whose quotient by the smallest integer would overflow."""
    op = draw(st.sampled_from(["floordiv", "mod", "truncdiv", "rem"]))
    divisor = draw(st.integers(1, 9) | st.integers(-9, -2))
    return e.Binary(op, a, e.Const(divisor, type_), type_)


@st.composite
def _leaves(draw: st.DrawFn, type_: Type, scope: Scope) -> e.Expr:
    """A constant, a variable, or an element of memory."""
    choices: list[Callable[[], e.Expr]] = [lambda: e.Const(_number(draw, type_), type_)]
    variables = scope.of_type(type_)
    if variables:
        choices += [lambda: draw(st.sampled_from(variables))] * 2
    sources = [m for m in scope.memory if _can_read(m, type_)]
    if sources:
        choices.append(lambda: _read(draw, draw(st.sampled_from(sources)), type_, scope))
    choice: Callable[[], e.Expr] = draw(st.sampled_from(choices))
    # Memory and locals hold any value; within bounds again, products of them fit.
    return _bounded(choice()) if type_ is dtypes.i64 else choice()


def _number(draw: st.DrawFn, type_: Type) -> bool | int | float:
    dtype = type_.dtype if isinstance(type_, VectorType) else type_
    assert isinstance(dtype, DType)
    if dtype.kind == "bool":
        return bool(draw(st.booleans()))
    if dtype.is_int:
        return int(draw(st.integers(-9, 9)))
    return float(draw(st.sampled_from([0.0, -0.0, 1.0, -1.5, 0.1, 1e3, float("inf"), float("nan")])))


def _bounded(a: e.Expr) -> e.Expr:
    if isinstance(a, e.Const):
        return a
    return e.Binary("rem", a, e.Const(_LEAF_BOUND, dtypes.i64), dtypes.i64)


def _can_read(memory: e.Var, type_: Type) -> bool:
    if isinstance(memory.type, BufferType):
        return type_ == with_lanes(memory.type.dtype, memory.type.lanes)
    if isinstance(type_, VectorType):
        return memory.dtype == type_.dtype and type_.dtype.kind != "bool"
    return memory.dtype == type_


def _read(draw: st.DrawFn, memory: e.Var, type_: Type, scope: Scope) -> e.Expr:
    mask = None
    if isinstance(type_, VectorType) and isinstance(memory.type, PointerType) and draw(st.booleans()):
        mask = draw(expressions(VectorType(dtypes.boolean, LANES), scope, 0))
    return e.Load(memory, _places(draw, memory, type_, scope), type_, mask)


def _places(draw: st.DrawFn, memory: e.Var, type_: Type, scope: Scope) -> tuple[e.Expr, ...]:
    """Indices inside `memory`, for a value of `type_`."""
    if isinstance(memory.type, BufferType):
        extents = [int(extent.value) for extent in memory.type.shape if isinstance(extent, e.Const)]  # type: ignore[arg-type]  # i64
        return tuple(_index(draw, extent, scope) for extent in extents)
    return (_index(draw, ARRAY_ELEMENTS - (LANES - 1 if isinstance(type_, VectorType) else 0), scope),)


def _index(draw: st.DrawFn, extent: int, scope: Scope) -> e.Expr:
    """An i64 expression between 0 and extent - 1."""
    inner = draw(expressions(dtypes.i64, replace(scope, memory=()), 1))
    return e.Binary("mod", inner, e.Const(extent, dtypes.i64), dtypes.i64)


@st.composite
def _blocks(draw: st.DrawFn, scope: Scope, budget: int) -> s.Stmt:
    """A few statements; declarations among them are visible to the following ones."""
    stmts: list[s.Stmt] = []
    for _ in range(draw(st.integers(1, max(budget, 1)))):
        kind = draw(st.sampled_from(_STATEMENTS if budget > 1 else _STATEMENTS[:3]))
        made, scope = kind(draw, scope, budget)
        stmts.extend(made)
    return build.seq(stmts)


Made = tuple[Sequence[s.Stmt], Scope]


def _declare(draw: st.DrawFn, scope: Scope, budget: int) -> Made:
    type_: Type = draw(st.sampled_from(_LOCALS))
    var = e.Var(draw(st.sampled_from(["x", "y", "lambda", "t.0"])), type_)
    made = s.Declare(var, draw(expressions(type_, scope)))
    return [made], replace(scope, values=(*scope.values, var), assignable=(*scope.assignable, var))


def _assign(draw: st.DrawFn, scope: Scope, budget: int) -> Made:
    if not scope.assignable:
        return _declare(draw, scope, budget)
    var = draw(st.sampled_from(scope.assignable))
    return [s.Assign(var, draw(expressions(var.type, scope)))], scope


def _store(draw: st.DrawFn, scope: Scope, budget: int) -> Made:
    memory = draw(st.sampled_from(scope.memory))
    mask = None
    if isinstance(memory.type, BufferType):
        type_ = with_lanes(memory.type.dtype, memory.type.lanes)
    else:
        type_ = with_lanes(memory.dtype, draw(st.sampled_from([1, LANES])) if memory.dtype is dtypes.f32 else 1)
        if isinstance(type_, VectorType) and draw(st.booleans()):
            mask = draw(expressions(VectorType(dtypes.boolean, LANES), scope, 1))
    indices = _places(draw, memory, type_, scope)
    return [s.Store(memory, indices, draw(expressions(type_, scope)), mask)], scope


def _local_array(draw: st.DrawFn, scope: Scope, budget: int) -> Made:
    """A local array, and loops that write all of it."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    extents = tuple(build.index(extent) for extent in shape)
    var = e.Var("tile", BufferType(dtypes.f32, extents, None, "local", draw(st.sampled_from([1, LANES]))))
    axes = tuple(build.size_var("k") for _ in shape)
    value = draw(expressions(with_lanes(dtypes.f32, var.lanes), scope, 1))
    fill: s.Stmt = s.Store(var, axes, value)
    for axis, extent in zip(reversed(axes), reversed(extents), strict=True):
        fill = s.For(axis, build.index(0), extent, fill)
    return [s.Declare(var), fill], replace(scope, memory=(*scope.memory, var))


def _for(draw: st.DrawFn, scope: Scope, budget: int) -> Made:
    kind: s.LoopKind = draw(st.sampled_from(_LOOP_KINDS))
    var = build.size_var(draw(st.sampled_from(["i", "k"])))
    start, extent, step = draw(st.integers(0, 2)), draw(st.integers(0, 4)), draw(st.integers(1, 2))
    inner = replace(scope, values=(*scope.values, var), can_leave=kind == "serial")
    body = draw(_blocks(inner, budget - 2))
    return [s.For(var, build.index(start), build.index(extent), body, step, kind)], scope


def _while(draw: st.DrawFn, scope: Scope, budget: int) -> Made:
    """A loop that counts down; the counter is out of the body's reach."""
    left = build.size_var("left")
    body = draw(_blocks(replace(scope, can_leave=False), budget - 2))
    count = s.Declare(left, build.index(draw(st.integers(0, 3))))
    return [count, s.While(left > 0, build.seq([s.Assign(left, left - 1), body]))], scope


def _if(draw: st.DrawFn, scope: Scope, budget: int) -> Made:
    condition = draw(expressions(dtypes.boolean, scope))
    then = draw(_blocks(scope, budget - 2))
    return [s.If(condition, then, draw(st.none() | _blocks(scope, budget - 2)))], scope


def _leave(draw: st.DrawFn, scope: Scope, budget: int) -> Made:
    if not scope.can_leave:
        return _store(draw, scope, budget)
    return [s.If(draw(expressions(dtypes.boolean, scope, 1)), draw(st.sampled_from([s.Break(), s.Continue()])))], scope


_STATEMENTS: tuple[Callable[[st.DrawFn, Scope, int], Made], ...] = (
    *(_store, _assign, _declare, _local_array, _for, _while, _if, _leave),
)
