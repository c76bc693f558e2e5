"""Kernels as OpenCL can have them: assertions note what fails, and truth values are passed as bytes.

A thread whose assertion fails writes which one it was, and its values, to words that the launch gives, unless another
thread did before, and leaves the kernel. The call raises it when its kernels have ended: a device cannot end it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hidet import dtypes
from hidet.gpu.intrinsics import intrinsic_call
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Binary, Call, Cast, Const, Expr, Unary, Var
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.types import PointerType
from hidet.ir.visit import rewrite, walk
from hidet.loc import Loc

FAILURE_WORDS = 1 + 2 * s.ASSERTED_VALUES
"""i32 words, all zero, that a call gives its kernels: number of the failed assertion, then halves of its values."""

_NOTE = "hidet_note_failure"


@dataclass(frozen=True, slots=True)
class Assertion:
    """What to tell of a failed assertion: the function that it stands in, its message, how many values go with it, and
    its place in the user's script."""

    function: str
    message: str
    values: int
    loc: Loc | None


def note_assertions(module: Module) -> tuple[Module, tuple[Assertion, ...], frozenset[str]]:
    """The module with kernels that note failed assertions, what their numbers, from 1, stand for, and the functions
    that take the words and the number before their first assertion's as further parameters."""
    asserting = _asserting(module)
    if not asserting:
        return module, (), asserting
    found: list[Assertion] = []
    functions = [_noting(f, asserting, found) if f.name in asserting else f for f in module.functions]
    return replace(module, functions=(_note_function(), *functions)), tuple(found), asserting


def pass_bytes(function: Function) -> Function:
    """A kernel that takes numbers in the place of truth values, which are no parameters of kernels in OpenCL."""
    given: Mapping[Var, Var] = {v: Var(v.name, dtypes.u8) for v in function.params if v.type is dtypes.boolean}
    if not given:
        return function
    truths = [s.Declare(old, Cast(new, dtypes.boolean)) for old, new in given.items()]
    params = tuple(given.get(var, var) for var in function.params)
    return replace(function, params=params, body=build.seq([*truths, function.body]))


def _asserting(module: Module) -> frozenset[str]:
    """Kernels and device functions with assertions, and those that call such functions."""
    device = [f for f in module.functions if f.kind != "host"]
    found = {f.name for f in device if any(isinstance(node, s.Assert) for node in walk(f.body))}
    while True:
        calling = {
            f.name for f in device if any(isinstance(node, Call) and node.callee in found for node in walk(f.body))
        }
        if calling <= found:
            return frozenset(found)
        found |= calling


def _noting(function: Function, asserting: frozenset[str], found: list[Assertion]) -> Function:
    words, base = Var("failure", PointerType(dtypes.i32)), Var("first_assertion", dtypes.i32)

    def change(node: IRNode) -> IRNode | None:
        if isinstance(node, Call) and node.callee in asserting:
            return replace(node, arguments=(*node.arguments, words, base))
        if not isinstance(node, s.Assert):
            return None
        found.append(Assertion(function.name, node.message, len(node.values), node.loc))
        number = Binary("add", base, Const(len(found), dtypes.i32), dtypes.i32)
        values = [*node.values, *[build.index(0)] * (s.ASSERTED_VALUES - len(node.values))]
        note = s.Evaluate(Call(_NOTE, (words, number, *values), None))  # type: ignore[arg-type]  # gives no value
        return s.If(Unary("lnot", node.condition, dtypes.boolean), build.seq([note, *_leave(function)]))

    body = rewrite(function.body, change)
    return replace(function, params=(*function.params, words, base), body=body)


def _leave(function: Function) -> list[s.Stmt]:
    if function.result is None:
        return [s.Return(None)]
    is_number = isinstance(function.result, dtypes.DType)
    return [s.Return(Const(0, function.result))] if is_number else []


def _note_function() -> Function:
    words, number = Var("failure", PointerType(dtypes.i32)), Var("number", dtypes.i32)
    values = tuple(Var(f"value{n}", dtypes.i64) for n in range(s.ASSERTED_VALUES))
    before = intrinsic_call("gpu.atomic_compare_exchange", words, Const(0, dtypes.i32), number)
    halves: list[Expr] = [build.cast(half, dtypes.i32) for v in values for half in (v, build.binary("shr", v, 32))]
    notes = [s.Store(words, (build.index(1 + n),), half) for n, half in enumerate(halves)]
    first = Binary("eq", before, Const(0, dtypes.i32), dtypes.boolean)
    return Function(_NOTE, (words, number, *values), s.If(first, build.seq(notes)), "device")
