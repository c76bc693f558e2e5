"""What scalar operations of thread IR give where hardware and languages differ, and whether a target gives that.

docs/ir.md shows the same table to readers. Every case is computed three ways, which code generators treat differently:
of two values in memory, of a value in memory and a constant, and of two constants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.compiler.modules import build_ir_module
from hidet.context import make_context
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.ir.stmt import Launch, Store
from hidet.ir.types import PointerType

Array = np.ndarray[Any, Any]

SIGNED = (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64)
UNSIGNED = (dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64)
FLOATS = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
CLASSES: dict[str, tuple[DType, ...]] = {
    "signed": SIGNED,
    "unsigned": UNSIGNED,
    "integers": (*SIGNED, *UNSIGNED),
    "floats": FLOATS,
    "bool": (dtypes.boolean,),
    **{dtype.short: (dtype,) for dtype in (*SIGNED, *UNSIGNED, *FLOATS)},
}
"""What a row may name: classes of element types, and types."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One row: an operation on values of a class of types.

    types: a key of `CLASSES`. operands, result: numbers, or what a type has: "min", "max", "bits", with a number added
    ("max-1"); that of the operands, and for the result its own. to: the class of types that a "cast" gives.
    """

    op: str
    types: str
    operands: tuple[str, ...]
    result: str
    to: str = ""


def _rows(op: str, types: str, *cases: str, to: str = "") -> Iterator[Edge]:
    """Rows of one operation; a case is written "operand, operand = result"."""
    for case in cases:
        operands, result = case.split(" = ")
        yield Edge(op, types, tuple(operands.split(", ")), result, to)


EDGES: tuple[Edge, ...] = (
    *_rows("add", "integers", "max, 1 = min"),
    *_rows("sub", "integers", "min, 1 = max"),
    *_rows("mul", "signed", "max, 2 = -2", "min, -1 = min"),
    *_rows("mul", "unsigned", "max, 2 = max-1"),
    *_rows("neg", "signed", "min = min"),
    *_rows("neg", "unsigned", "1 = max"),
    *_rows("abs", "signed", "min = min"),
    *_rows("truncdiv", "integers", "7, 0 = 0", "0, 0 = 0"),
    *_rows("truncdiv", "signed", "min, -1 = min", "-7, 2 = -3", "7, -2 = -3"),
    *_rows("floordiv", "integers", "7, 0 = 0", "0, 0 = 0"),
    *_rows("floordiv", "signed", "min, -1 = min", "-7, 2 = -4", "7, -2 = -4"),
    *_rows("rem", "integers", "7, 0 = 0"),
    *_rows("rem", "signed", "min, -1 = 0", "-7, 2 = -1", "7, -2 = 1"),
    *_rows("mod", "integers", "7, 0 = 0"),
    *_rows("mod", "signed", "min, -1 = 0", "-7, 2 = 1", "7, -2 = -1"),
    *_rows("shl", "integers", "1, bits = 0"),
    *_rows("shl", "signed", "1, -1 = 0", "3, bits-1 = min"),
    *_rows("shr", "unsigned", "max, bits = 0", "max, bits-1 = 1"),
    *_rows("shr", "signed", "min, bits = -1", "max, bits = 0", "min, -1 = -1", "max, -1 = 0"),
    *_rows("pow", "integers", "0, 0 = 1", "max, 2 = 1"),
    *_rows("pow", "signed", "2, -1 = 0", "0, -1 = 0", "1, -3 = 1", "-1, -3 = -1", "-1, -2 = 1"),
    *_rows("div", "floats", "1, 0 = inf", "-1, 0 = -inf", "0, 0 = nan"),
    *_rows("floordiv", "floats", "1, 0 = inf", "-7, 2 = -4", "-7, inf = -1", "nan, 1 = nan"),
    *_rows("truncdiv", "floats", "1, 0 = inf", "-7, 2 = -3"),
    *_rows("rem", "floats", "7, 0 = nan", "-7, 2 = -1", "7, inf = 7", "inf, 2 = nan"),
    *_rows("mod", "floats", "7, 0 = nan", "-7, 2 = 1", "7, -2 = -1", "-7, inf = inf", "inf, 2 = nan"),
    *_rows("mul", "floats", "max, 2 = inf", "inf, 0 = nan"),
    *_rows("min", "floats", "nan, 1 = nan", "1, nan = nan", "-inf, 1 = -inf"),
    *_rows("max", "floats", "nan, 1 = nan", "1, nan = nan", "inf, 1 = inf"),
    *_rows("eq", "floats", "nan, nan = 0"),
    *_rows("ne", "floats", "nan, nan = 1"),
    *_rows("lt", "floats", "nan, 1 = 0"),
    *_rows("ge", "floats", "nan, 1 = 0"),
    *_rows("pow", "floats", "0, 0 = 1", "nan, 0 = 1", "1, nan = 1", "-8, 0.5 = nan"),
    *_rows("sqrt", "floats", "-1 = nan"),
    *_rows("rsqrt", "floats", "0 = inf", "-1 = nan"),
    *_rows("log", "floats", "0 = -inf", "-1 = nan"),
    *_rows("exp", "floats", "inf = inf", "-inf = 0", "100000 = inf"),
    *_rows("round", "floats", "0.5 = 0", "1.5 = 2", "2.5 = 2", "-2.5 = -2"),
    *_rows("add", "bool", "1, 1 = 1"),
    *_rows("mul", "bool", "1, 0 = 0"),
    *_rows("max", "bool", "1, 0 = 1"),
    *_rows("not", "bool", "1 = 0"),
    *_rows("cast", "floats", "nan = 0", "inf = max", "-inf = min", "2.9 = 2", to="i32"),
    *_rows("cast", "floats", "nan = 0", "inf = max", "-inf = min", "-2.9 = -2", to="i64"),
    *_rows("cast", "floats", "nan = 0", "inf = max", "-1 = 0", "2.9 = 2", to="u32"),
    *_rows("cast", "floats", "nan = 0", "inf = max", "-1 = 0", to="u64"),
    *_rows("cast", "floats", "nan = 0", "300 = 44", "-129 = 127", "inf = -1", to="i8"),
    *_rows("cast", "floats", "nan = 0", "300 = 44", "-1 = max", "inf = max", to="u8"),
    *_rows("cast", "f32", "3e9 = max", "-3e9 = min", to="i32"),
    *_rows("cast", "f64", "1e19 = max", to="i64"),
    *_rows("cast", "floats", "nan = 1", "0.25 = 1", "0 = 0", to="bool"),
    *_rows("cast", "i32", "300 = 44", "-1 = max", to="u8"),
    *_rows("cast", "i32", "-1 = max", to="u64"),
    *_rows("cast", "u32", "max = -1", to="i32"),
    *_rows("cast", "bool", "1 = 1", to="integers"),
    *_rows("cast", "i64", "16777217 = 16777216", to="f32"),
    *_rows("cast", "f64", "1e300 = inf", to="f32"),
)
"""The table. Operations that are in no row have no such values, or give what IEEE 754 says."""


@dataclass(frozen=True, slots=True)
class EdgeReport:
    """What `check_edges` found.

    checked: how many cases were computed. wrong: those with another result, a line each. refused: what the target has
    no code for, as it says itself; each operation and type once.
    """

    checked: int
    wrong: tuple[str, ...]
    refused: tuple[str, ...]


def check_edges(target: str | None) -> EdgeReport:
    """Compute the table on a target, which has to be able to run here; None is the interpreter.

    Raises what the target raises where it cannot run, but for CodegenError of an operation or a type.
    """
    by_type: dict[DType, list[_Case]] = {}
    for case in _cases():
        by_type.setdefault(case.source, []).append(case)
    wrong: list[str] = []
    refused: dict[str, None] = {}
    checked = 0
    for cases in by_type.values():
        for group, run in _runnable(cases, target, refused):
            checked += len(group)
            wrong += [line for number, case in enumerate(group) for line in case.compare(run(number))]
    return EdgeReport(checked, tuple(wrong), tuple(refused))


@dataclass(frozen=True, slots=True)
class _Case:
    """A row for one type, or two where it converts."""

    edge: Edge
    source: DType
    target: DType

    @property
    def operands(self) -> list[Array]:
        return [_number(text, self.source) for text in self.edge.operands]

    def compare(self, found: Array) -> Iterator[str]:
        """A line if a result is not what the row says."""
        expected = _number(self.edge.result, self.target)
        wide = found.astype(np.float64) if self.target.is_float else found
        if not np.array_equal(wide, np.full(len(found), expected).astype(wide.dtype), equal_nan=self.target.is_float):
            given = ", ".join(self.edge.operands)
            name = f"{self.edge.op} of {self.source}" + (f" to {self.target}" if self.edge.to else "")
            yield f"{name} at ({given}): {', '.join(map(str, found))}, expected {self.edge.result}"

    def functions(self, number: int) -> tuple[Function, Function]:
        """A kernel that computes the case in every way, and the host function that launches it."""
        pointers = [e.Var(name, PointerType(self.source)) for name in ("a", "b")[: len(self.edge.operands)]]
        result, way = e.Var("result", PointerType(self.target)), build.size_var("way")
        loaded: list[e.Expr] = [build.load(pointer, 0) for pointer in pointers]
        constants = [_constant(value, self.source) for value in self.operands]
        ways = [self._raw(loaded), self._raw([loaded[0], *constants[1:]]), self._folded(constants)]
        value = build.select(build.equal(way, 0), ways[0], build.select(build.equal(way, 1), ways[1], ways[2]))
        params = (*pointers, result)
        kernel = Function(f"kernel{number}", params, Store(result, (way,), value), "kernel", (way,))
        launch = Launch(kernel.name, (build.index(len(ways)),), params)
        return kernel, Function(f"edge{number}", params, launch, "host")

    def _raw(self, operands: Sequence[e.Expr]) -> e.Expr:
        if self.edge.op == "cast":
            return e.Cast(operands[0], self.target)
        if len(operands) == 1:
            return e.Unary(self.edge.op, operands[0], self.target)
        a, b = operands
        return e.Binary(self.edge.op, a, b, self.target)

    def _folded(self, operands: Sequence[e.Expr]) -> e.Expr:
        if self.edge.op == "cast":
            return build.cast(operands[0], self.target)
        return build.unary(self.edge.op, *operands) if len(operands) == 1 else build.binary(self.edge.op, *operands)


def _cases() -> Iterator[_Case]:
    for edge in EDGES:
        for source in CLASSES[edge.types]:
            if edge.op == "cast":
                yield from (_Case(edge, source, target) for target in CLASSES[edge.to])
            else:
                row = (UNARY_OPS if len(edge.operands) == 1 else BINARY_OPS)[edge.op]
                yield _Case(edge, source, dtypes.boolean if row.result == "bool" else source)


_NAMED = re.compile(r"(min|max|bits)([+-]\d+)?")


def _number(text: str, dtype: DType) -> Any:
    """A number of the table as a value of a type; sums beyond an integer type's range wrap around."""
    found = _NAMED.fullmatch(text)
    if found is None:
        return float(text) if dtype.is_float else int(text)
    if dtype.is_float:
        return float(getattr(dtype, found[1]))
    value = int(getattr(dtype, found[1])) + int(found[2] or 0)
    return (value - int(dtype.min)) % 2**dtype.bits + int(dtype.min)


def _constant(value: Any, dtype: DType) -> e.Const:
    return e.Const(bool(value) if dtype.is_bool else value, dtype)


def _module(cases: Sequence[_Case]) -> Module:
    return Module(tuple(f for number, case in enumerate(cases) for f in case.functions(number)), "edge0")


_Run = Callable[[int], Array]


def _runnable(
    cases: Sequence[_Case], target: str | None, refused: dict[str, None]
) -> Iterator[tuple[Sequence[_Case], _Run]]:
    """Cases that a target has code for, with what computes one of them by its number; all together where it can be."""
    try:
        yield cases, _runner(cases, target)
    except CodegenError as error:
        if len(cases) == 1:
            refused[error.message] = None
            return
        for case in cases:
            yield from _runnable([case], target, refused)


def _runner(cases: Sequence[_Case], target: str | None) -> _Run:
    """Computes a case, by its number. CodegenError where the target has no code for one of them."""
    module = _module(cases)
    call = partial(_interpret, module) if target is None else _compiled(module, target)

    def run(number: int) -> Array:
        case = cases[number]
        with np.errstate(all="ignore"):
            given = [np.asarray(value).astype(case.source.numpy()).reshape(1) for value in case.operands]
        return call(f"edge{number}", [*given, np.zeros(3, case.target.numpy())])

    return run


def _interpret(module: Module, name: str, arrays: Sequence[Array]) -> Array:
    run_module(module, arrays, entry=name)
    return arrays[-1]


def _compiled(module: Module, target: str) -> Callable[[str, Sequence[Array]], Array]:
    """Calls a function of a module on a target, with copies of arrays in its memory; gives the last of them."""
    compiled = build_ir_module(module, target)
    memory = make_context(target).target.memory

    def call(name: str, arrays: Sequence[Array]) -> Array:
        placed = arrays if memory is None else [memory.place(array) for array in arrays]
        compiled[name](*placed)
        return arrays[-1] if memory is None else np.asarray(memory.download(placed[-1]))

    return call
