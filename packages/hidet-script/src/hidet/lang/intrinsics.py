"""Intrinsics as functions of scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import DTypeError, suggestion
from hidet.ir.expr import Expr
from hidet.ir.intrinsic import Immediate, Intrinsic, Memory, Parameter, Value
from hidet.ir.intrinsic_call import call_intrinsic
from hidet.ir.types import element_dtype
from hidet.lang import operators
from hidet.lang.operand import unwrapped
from hidet.lang.values import TensorValue


@dataclass(frozen=True, slots=True)
class IntrinsicFunction:
    """One intrinsic as a function of scripts.

    defaults: of parameters at the end that a call may leave out. other_names: of arguments, and the parameters that
    each may stand for.
    """

    row: Intrinsic
    defaults: Mapping[str, int] = field(default_factory=dict)
    other_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def doc(self) -> str:
        """What it takes and does, and which instruction of the PTX ISA manual it is."""
        names = ", ".join(parameter.name for parameter in self.row.parameters)
        instruction = f" PTX: {self.row.ptx}." if self.row.ptx else ""
        return f"{self.row.name}({names}): {self.row.doc}.{instruction}"

    def __call__(self, *arguments: Any, lanes: int = 1, **keywords: Any) -> Any:
        """The call as an expression; `lanes`: of a result whose width the call chooses, as of a vector load.

        Arguments may be named as the row names its parameters. VerifyError or DTypeError when they do not fit.
        """
        given = [_argument(unwrapped(argument)) for argument in (*arguments, *self._named(len(arguments), keywords))]
        for parameter in self.row.parameters[len(given) :]:
            default = self.defaults.get(parameter.name)
            if default is None:
                break
            given.append(default)
        dtype = _group_dtype(self.row, given)
        pairs = zip(self.row.parameters, given, strict=False)
        converted = [_converted(self.row, parameter, value, dtype) for parameter, value in pairs]
        return call_intrinsic(self.row, *converted, *given[len(converted) :], lanes=lanes)

    def _named(self, position: int, keywords: dict[str, Any]) -> list[Any]:
        """Arguments given by name, in order. DTypeError for names of no further parameter, and gaps between them."""
        names = [parameter.name for parameter in self.row.parameters[position:]]
        by_name = {
            next((own for own in self.other_names.get(name, ()) if own in names), name): value
            for name, value in keywords.items()
        }
        unknown = [name for name in by_name if name not in names]
        if unknown:
            raise DTypeError(
                f"{self.row.name} takes no further argument {unknown[0]!r}", hint=suggestion(unknown[0], names)
            )
        given = names[: len(by_name)]
        missing = [name for name in given if name not in by_name]
        if missing:
            raise DTypeError(f"{self.row.name} needs a value for {missing[0]}")
        return [by_name[name] for name in given]


def _argument(value: Any) -> Any:
    if isinstance(value, TensorValue):
        return value.start()
    return operators.as_expr(value) if isinstance(value, Expr) else value


def _group_dtype(row: Intrinsic, given: list[Any]) -> DType | None:
    """The element type of the arguments that must agree, from the first one that is an expression."""
    for parameter, value in zip(row.parameters, given, strict=False):
        if isinstance(parameter, Memory | Value) and parameter.group and isinstance(value, Expr):
            return element_dtype(value.type)
    return None


def _converted(row: Intrinsic, parameter: Parameter, value: Any, group_dtype: DType | None) -> Any:
    """Numbers get the type that the parameter asks for; integers convert to the only one it takes."""
    if isinstance(parameter, Immediate | Memory):
        if isinstance(parameter, Immediate) and not isinstance(value, Expr | int):
            raise DTypeError(f"{parameter.name} of {row.name} is {value!r}, expected a constant")
        return value
    what = f"{parameter.name} of {row.name}"
    is_grouped = isinstance(parameter, Value) and parameter.group
    target = group_dtype if is_grouped else parameter.dtypes[0] if len(parameter.dtypes) == 1 else None
    if target is None:
        return operators.as_expr(value)
    if target is dtypes.boolean:
        return operators.condition(value)
    if not isinstance(value, Expr) or (value.lanes == 1 and value.type != target):
        return operators.convert(value, target, what)
    return value
