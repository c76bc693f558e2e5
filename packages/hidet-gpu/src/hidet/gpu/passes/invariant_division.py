"""Division by a number that is the same for all threads becomes a multiplication (Robison, "N-bit unsigned division via
N-bit multiply-add", 2005): host code finds the factor once a launch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet import dtypes
from hidet.ir import build
from hidet.ir.expr import Binary, Bitcast, Call, Cast, Const, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.stmt import Assign, Declare, Launch
from hidet.ir.visit import rewrite, substitute, walk

if TYPE_CHECKING:
    from hidet.context import CompileContext

_WORD = 32
_UNIFORM = ("add", "sub", "mul", "floordiv", "mod", "min", "max", "shl", "shr", "and", "or")
_BLOCKS = {f"gpu.grid_dim.{axis}": Var(f"blocks_{axis}", dtypes.i32) for axis in "xyz"}
"""What stands for the extents of the grid in a divisor, until its launch tells them."""
_MANTISSA, _BIAS = 52, 1023
"""Bits below the exponent of an f64, and what is added to that."""


@dataclass(frozen=True)
class InvariantDivision:
    """Kernels divide numbers of 32 bits without a sign by what their launch tells with a multiplication, an addition
    and a shift.

    A quotient n // d is (n * factor + addend) >> (32 + shift). Each such divisor gives its kernel these three
    parameters, which every launch computes from its arguments.
    """

    name: ClassVar[str] = "gpu-invariant-division"

    def run(self, module: Module, ctx: CompileContext) -> Module:
        """The same module where no kernel divides so."""
        return invariant_division(module)


def invariant_division(module: Module) -> Module:
    """The pass as a function."""
    launched = {
        node.kernel for f in module.functions if f.kind == "host" for node in walk(f.body) if isinstance(node, Launch)
    }
    changed: dict[str, tuple[Function, list[Expr]]] = {}
    for function in module.functions:
        if function.kind == "kernel" and function.name in launched:
            made, divisors = _without_division(function)
            if divisors:
                changed[function.name] = made, divisors
    if not changed:
        return module
    params = {function.name: function.params for function in module.functions}

    def change(node: IRNode) -> IRNode | None:
        if not isinstance(node, Launch) or node.kernel not in changed:
            return None
        given = dict(zip(params[node.kernel], node.arguments, strict=True))
        extents = (*node.grid, *[build.index(1)] * (len(_BLOCKS) - len(node.grid)))
        given |= {var: build.cast(extent, var.dtype) for var, extent in zip(_BLOCKS.values(), extents, strict=True)}
        numbers = [number for divisor in changed[node.kernel][1] for number in _numbers(substitute(divisor, given))]
        return replace(node, arguments=(*node.arguments, *numbers))

    functions = []
    for function in module.functions:
        if function.kind == "host":
            function = replace(function, body=rewrite(function.body, change))
        functions.append(changed[function.name][0] if function.name in changed else function)
    return replace(module, functions=tuple(functions))


def _without_division(function: Function) -> tuple[Function, list[Expr]]:
    """A kernel with three more parameters for each divisor that its launches tell, and these divisors in terms of its
    other parameters and of the grid."""
    known = _uniform_variables(function)
    found: dict[Hashable, tuple[Expr, tuple[Var, Var, Var]]] = {}
    quotients: dict[tuple[int, int], Expr] = {}

    def change(node: IRNode) -> IRNode | None:
        if not isinstance(node, Binary) or node.op not in ("floordiv", "mod") or node.type != dtypes.u32:
            return None
        divisor = _uniform(node.b, known)
        if divisor is None or isinstance(divisor, Const):
            return None
        key = _key(divisor)
        if key not in found:
            names = (f"{what}{len(found)}" for what in ("factor", "addend", "shift"))
            types = (dtypes.u32, dtypes.u64, dtypes.u32)
            factor, addend, shift = (Var(name, dtype) for name, dtype in zip(names, types, strict=True))
            found[key] = divisor, (factor, addend, shift)
        pair = id(node.a), id(node.b)
        quotient = quotients.setdefault(pair, _quotient(node.a, *found[key][1]))
        return quotient if node.op == "floordiv" else node.a - quotient * node.b

    body = rewrite(function.body, change)
    added = [var for _, numbers in found.values() for var in numbers]
    return replace(function, params=(*function.params, *added), body=body), [divisor for divisor, _ in found.values()]


def _uniform_variables(function: Function) -> dict[Var, Expr]:
    """Integers that all threads of a launch agree on, in terms of the kernel's parameters."""
    known: dict[Var, Expr] = {param: param for param in function.params if _is_integer(param)}
    nodes = list(walk(function.body))
    assigned = {node.var for node in nodes if isinstance(node, Assign)}
    for node in nodes:
        # Parents come first, and so does what is declared before it is used.
        if isinstance(node, Declare) and node.init is not None and node.var not in assigned and _is_integer(node.var):
            value = _uniform(node.init, known)
            if value is not None:
                known[node.var] = value
    return known


def _uniform(value: Expr, known: Mapping[Var, Expr]) -> Expr | None:
    """A value in terms of the kernel's parameters and of the grid; None where it is more than arithmetic with these."""
    if isinstance(value, Const):
        return value
    if isinstance(value, Call):
        return _BLOCKS.get(value.callee)
    if isinstance(value, Var):
        return known.get(value)
    if isinstance(value, Cast) and _is_integer(value) and _is_integer(value.a):
        inner = _uniform(value.a, known)
        return None if inner is None else build.cast(inner, value.dtype)
    if isinstance(value, Binary) and value.op in _UNIFORM and _is_integer(value):
        a, b = _uniform(value.a, known), _uniform(value.b, known)
        return None if a is None or b is None else build.binary(value.op, a, b)
    return None


def _key(value: Expr) -> Hashable:
    """Equal for divisors that are the same arithmetic with the same parameters, wherever they are computed."""
    if isinstance(value, Const):
        return value.value, value.dtype
    if isinstance(value, Cast):
        return value.dtype, _key(value.a)
    return (value.op, value.dtype, _key(value.a), _key(value.b)) if isinstance(value, Binary) else value


def _is_integer(value: Expr) -> bool:
    return value.type in (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)


def _quotient(n: Expr, factor: Var, addend: Var, shift: Var) -> Expr:
    """In a kernel: a product of two words with a sum, and shifts of one word."""
    wide = build.cast(n, dtypes.u64) * build.cast(factor, dtypes.u64) + addend
    high = build.cast(_shifted("shr", wide, _WORD), dtypes.u32)
    # Told to be less than a word has bits, it needs no test.
    return build.binary("shr", high, build.binary("and", shift, _WORD - 1))


def _numbers(divisor: Expr) -> tuple[Expr, Expr, Expr]:
    """In host code: a factor, an addend and a shift. Nobody divides by 0, for which they are those of 1."""
    d = build.maximum(build.cast(divisor, dtypes.i64), 1)
    exponent = _shifted("shr", Bitcast(build.cast(d, dtypes.f64), dtypes.i64), _MANTISSA) - _BIAS
    wide, one = build.cast(d, dtypes.u64), build.const(1, dtypes.u64)
    power = build.binary("shl", one, build.cast(exponent + _WORD, dtypes.u64))
    low = power // wide
    # How far the factor that is rounded up is off: by so little that quotients are right, or that rounded down is used.
    excess = low * wide + wide - power
    is_power = build.equal(build.binary("and", wide, wide - one), 0)
    rounds_up = excess <= build.binary("shl", one, build.cast(exponent, dtypes.u64))
    most = build.const((1 << _WORD) - 1, dtypes.u64)
    factor = build.select(is_power, most, build.select(rounds_up, low + one, low))
    addend = build.select(is_power, most, build.select(rounds_up, build.const(0, dtypes.u64), low))
    return build.cast(factor, dtypes.u32), addend, build.cast(exponent, dtypes.u32)


def _shifted(op: str, value: Expr, by: int) -> Expr:
    return build.binary(op, value, build.const(by, value.dtype))
