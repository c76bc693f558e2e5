"""Building calls of intrinsics, and checking them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import MemorySpaceError, VerifyError
from hidet.ir.expr import Call, Cast, Const, Expr
from hidet.ir.intrinsic import ElementsOf, Immediate, Intrinsic, Memory, Parameter, Rest, SameAs, Value
from hidet.ir.types import BufferType, PointerType, Type, VectorType, element_dtype, lanes_of, with_lanes


def call_intrinsic(row: Intrinsic, *arguments: Expr | bool | int | float, lanes: int = 1) -> Call:
    """A call of `row`, with the type that follows from the arguments.

    Python numbers take the type of their parameter. lanes: of a result whose width the call chooses (a vector load).
    VerifyError when the arguments do not fit.
    """
    _check_count(row, arguments)
    given = [_converted(parameter, a, row) for parameter, a in zip(_parameters(row, arguments), arguments, strict=True)]
    checked_arguments(row, given)
    type_ = _result_type(row, given, lanes)
    # A call without result has no type; it stands in `Evaluate` only.
    return Call(row.name, tuple(given), type_, row)  # type: ignore[arg-type]


def check_intrinsic(node: Call) -> None:
    """Raise VerifyError unless `node`, which holds an intrinsic, is a right call of it."""
    row = node.intrinsic
    assert row is not None
    if node.callee != row.name:
        raise VerifyError(f"a call of {node.callee} holds the intrinsic {row.name}")
    _check_count(row, node.arguments)
    checked_arguments(row, node.arguments)
    given: Type | None = node.type
    lanes = 1 if given is None else lanes_of(given)
    expected = _result_type(row, node.arguments, lanes)
    if given != expected:
        raise VerifyError(f"a call of {row.name} has type {node.type}, it gives {expected or 'nothing'}")


def checked_arguments(row: Intrinsic, arguments: Sequence[Expr]) -> None:
    """Raise VerifyError unless each argument fits its parameter and arguments of one group agree."""
    groups: dict[str, tuple[str, DType]] = {}
    for parameter, argument in zip(_parameters(row, arguments), arguments, strict=True):
        if isinstance(parameter, Memory):
            _check_space(row, parameter, argument.type)
        problem = _CHECKS[type(parameter)](parameter, argument)
        if problem is not None:
            raise VerifyError(f"{parameter.name} of {row.name} is {problem}")
        if isinstance(parameter, Immediate | Rest) or not parameter.group:
            continue
        dtype = element_dtype(argument.type)
        first = groups.setdefault(parameter.group, (parameter.name, dtype))
        if first[1] != dtype:
            raise VerifyError(
                f"{first[0]} and {parameter.name} of {row.name} have elements of {first[1]} and {dtype}; cast one"
            )


def _check_count(row: Intrinsic, arguments: Sequence[object]) -> None:
    if len(arguments) != len(_parameters(row, arguments)):
        names = ", ".join(p.name for p in row.parameters) or "nothing"
        raise VerifyError(f"{row.name} takes {len(row.parameters)} arguments ({names}), got {len(arguments)}")


def _parameters(row: Intrinsic, arguments: Sequence[object]) -> tuple[Parameter, ...]:
    """One parameter an argument: a last one that takes any number of them is repeated."""
    own = row.parameters
    if not own or not isinstance(own[-1], Rest):
        return own
    return (*own[:-1], *[own[-1]] * (len(arguments) - len(own) + 1))


def _converted(parameter: Parameter, argument: Expr | bool | int | float, row: Intrinsic) -> Expr:
    if isinstance(argument, Expr):
        return argument
    if isinstance(parameter, Immediate):
        return Const(argument, dtypes.i32)
    if isinstance(parameter, Memory) or len(parameter.dtypes) != 1:
        raise VerifyError(f"{parameter.name} of {row.name} is the Python number {argument!r}, expected an expression")
    dtype = parameter.dtypes[0]
    return Const(float(argument) if dtype.is_float else argument, dtype)


def _listed(types: Sequence[object], most: int = 8) -> str:
    return ", ".join(map(str, types[:most])) + (", ..." if len(types) > most else "")


def _rest_problem(parameter: Rest, argument: Expr) -> str | None:
    if argument.type in parameter.dtypes:
        return None
    return f"{argument.type}, expected {_listed(parameter.dtypes)}"


def _value_problem(parameter: Value, argument: Expr) -> str | None:
    type_ = argument.type
    expected = _listed(parameter.dtypes) or "a value"
    if not isinstance(type_, DType | VectorType):
        return f"{type_}, expected {expected}"
    if parameter.dtypes and element_dtype(type_) not in parameter.dtypes:
        return f"{type_}, expected {expected}"
    if parameter.lanes and lanes_of(type_) not in parameter.lanes:
        return f"{type_}, expected {_listed(parameter.lanes)} lanes"
    return None


def _immediate_problem(parameter: Immediate, argument: Expr) -> str | None:
    """Scripts write immediates as literals of any integer type, with or without a cast."""
    constant = argument.a if isinstance(argument, Cast) else argument
    expected = f"a constant from {parameter.least} to {parameter.most}"
    if parameter.step > 1:
        expected += f" that is a multiple of {parameter.step}"
    if not isinstance(constant, Const) or not isinstance(constant.value, int) or isinstance(constant.value, bool):
        return f"no constant, expected {expected}"
    value = constant.value
    if not parameter.least <= value <= parameter.most or value % parameter.step:
        return f"{value}, expected {expected}"
    return None


def _check_space(row: Intrinsic, parameter: Memory, type_: Type) -> None:
    if isinstance(type_, PointerType | BufferType) and type_.space not in (*parameter.spaces, "generic"):
        expected = " or ".join(parameter.spaces)
        raise MemorySpaceError(
            f"{parameter.name} of {row.name} is an address in {type_.space} memory, expected {expected}"
        )


def _memory_problem(parameter: Memory, argument: Expr) -> str | None:
    type_ = argument.type
    spaces = " or ".join(parameter.spaces)
    if not isinstance(type_, PointerType | BufferType):
        return f"{type_}, expected an address in {spaces} memory"
    if parameter.dtypes and type_.dtype not in parameter.dtypes:
        return f"an address of {type_.dtype}, expected {_listed(parameter.dtypes)}"
    return None


_CHECKS: Mapping[type, Callable[[Any, Expr], str | None]] = {
    Value: _value_problem,
    Immediate: _immediate_problem,
    Memory: _memory_problem,
    Rest: _rest_problem,
}


def _result_type(row: Intrinsic, arguments: Sequence[Expr], lanes: int) -> Type | None:
    result = row.result
    if isinstance(result, SameAs | ElementsOf):
        place = next(i for i, p in enumerate(row.parameters) if p.name == result.parameter)
        type_ = arguments[place].type
        if isinstance(result, SameAs):
            return PointerType(type_.dtype, type_.space) if isinstance(type_, BufferType) else type_
        dtype = element_dtype(type_)
        if lanes & (lanes - 1) or lanes * dtype.nbytes > result.most_bytes:
            raise VerifyError(
                f"{row.name} gives {lanes} lanes of {dtype}, expected a power of two within {result.most_bytes} bytes"
            )
        return with_lanes(dtype, lanes)
    return result
