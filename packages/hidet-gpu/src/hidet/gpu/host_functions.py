"""What targets for GPUs share of compiling host functions, in which launches become calls of a driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Call, Cast, Expr
from hidet.ir.func import Function, Module
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import walk

WORD = dtypes.i64
"""The cells that drivers are given arguments in."""


def device_functions(module: Module, host: Sequence[Function]) -> tuple[Function, ...]:
    """Device functions that host code calls as well."""
    by_name = {f.name: f for f in module.functions if f.kind == "device"}
    found: dict[str, Function] = {}
    waiting: list[Function] = list(host)
    while waiting:
        for node in walk(waiting.pop().body):
            if isinstance(node, Call) and node.callee in by_name and node.callee not in found:
                found[node.callee] = by_name[node.callee]
                waiting.append(by_name[node.callee])
    return tuple(found.values())


def replace_arguments(node: s.Invoke, arguments: tuple[Expr, ...]) -> s.Invoke:
    """The same call with other arguments."""
    return replace(node, arguments=arguments)


def is_called_by_python(function: Function) -> bool:
    """Whether a host function takes a table and nothing else: the one way in (`hidet.target.LoadedCode.function`)."""
    return len(function.params) == 1 and isinstance(function.params[0].type, PointerType)


def words_on_stack(count: int) -> BufferType:
    """An array of words of a host function."""
    return BufferType(WORD, (build.index(count),), space="local")


def three_extents(extents: Sequence[Expr]) -> list[Expr]:
    """Extents of a grid or a block along x, y and z."""
    return [*extents, *[build.index(1)] * (3 - len(extents))]


def as_word(value: Expr) -> Expr:
    """An argument as the word whose lowest bytes are its bits."""
    type_ = value.type
    if isinstance(type_, PointerType | BufferType):
        return Bitcast(value, WORD)
    if not isinstance(type_, DType):
        raise CodegenError(f"a kernel takes a {type_}; vectors are no parameters of launches")
    if type_.is_bool:
        return Cast(value, WORD)
    if type_.is_float:
        carrier = {16: dtypes.u16, 32: dtypes.u32, 64: WORD}[type_.bits]
        value = Bitcast(value, carrier)
    return build.cast(value, WORD)
