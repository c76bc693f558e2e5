"""Functions that are called through a table: one 8-byte cell a parameter, in order, and one more for the result.

Compiled code has one way in (`hidet.target.LoadedCode.function`), which takes the address of a table. An entry reads
the cells, each in the type of its parameter, and calls the function.
"""

from __future__ import annotations

from hidet import dtypes
from hidet.errors import VerifyError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import AddressOf, Bitcast, Call, Expr, Load, Var
from hidet.ir.func import EXPORTED, Function, Module
from hidet.ir.types import BufferType, PointerType, Type

_TABLE = PointerType(dtypes.i64)


def callable_functions(module: Module) -> tuple[Function, ...]:
    """What a host may call: host functions, and exported functions that return a value."""
    return tuple(f for f in module.functions if f.kind == "host" or EXPORTED in f.attributes)


def with_table_entries(module: Module) -> tuple[Module, dict[str, str]]:
    """The module with an entry for each callable function, and the entries' names by those of the functions."""
    taken = {function.name for function in module.functions} | set(module.externals)
    names: dict[str, str] = {}
    entries = []
    for function in callable_functions(module):
        name = f"call_{function.name}"
        while name in taken:
            name = f"{name}_"
        taken.add(name)
        names[function.name] = name
        entries.append(_entry(name, function))
    return Module((*module.functions, *entries), names[module.entry], module.externals), names


def _entry(name: str, function: Function) -> Function:
    table = Var("table", _TABLE)
    arguments = tuple(_cell(table, number, var.type) for number, var in enumerate(function.params))
    body: s.Stmt
    if function.result is None:
        body = s.Invoke(function.name, arguments)
    else:
        value = Call(function.name, arguments, function.result)
        place = _place(table, len(arguments), function.result)
        body = s.Store(place, (build.index(0),), value)
    return Function(name, (table,), body, "host", attributes=(EXPORTED,))


def _cell(table: Var, number: int, type_: Type) -> Expr:
    """What a cell holds, as a value of `type_`. VerifyError for types that do not fit into one."""
    if isinstance(type_, PointerType | BufferType):
        return Bitcast(build.load(table, number), PointerType(type_.dtype, type_.space))
    return Load(_place(table, number, type_), (build.index(0),), type_)


def _place(table: Var, number: int, type_: Type) -> Expr:
    if not isinstance(type_, dtypes.DType) or type_.bits > 64:
        raise VerifyError(f"a value of type {type_} is not passed between Python and compiled functions")
    return Bitcast(AddressOf(table, (build.index(number),), _TABLE), PointerType(type_))
