"""What a compiled function takes, and how arguments are checked: dtypes, shapes, devices, contiguity, ranges."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import DTypeError, LaunchError, ShapeError, suggestion
from hidet.ir.expr import Binary, Cast, Const, Expr, Var
from hidet.ir.expr_text import print_expr
from hidet.ir.func import SIZES, Function
from hidet.ir.types import BufferType, PointerType, Type
from hidet.runtime.adapter import TensorFacts

# How `struct` writes a value into a cell of 8 bytes.
CELL_FORMATS = {
    dtypes.boolean: "?7x",
    dtypes.i8: "b7x",
    dtypes.i16: "h6x",
    dtypes.i32: "i4x",
    dtypes.i64: "q",
    dtypes.u8: "B7x",
    dtypes.u16: "H6x",
    dtypes.u32: "I4x",
    dtypes.u64: "Q",
    dtypes.f16: "e6x",
    dtypes.f32: "f4x",
    dtypes.f64: "d",
}


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """One parameter of a compiled function.

    is_memory: a tensor is passed for it. is_written: its memory may change. extents: of a tensor parameter, None for a
    pointer, which takes a tensor of any shape.
    """

    name: str
    type: Type
    is_written: bool = False

    @property
    def is_memory(self) -> bool:
        return isinstance(self.type, PointerType | BufferType)

    @property
    def dtype(self) -> DType:
        """Type of the number, or of the tensor's elements."""
        return self.type if isinstance(self.type, DType) else self.type.dtype

    @property
    def extents(self) -> tuple[Expr, ...] | None:
        return self.type.shape if isinstance(self.type, BufferType) else None

    def __str__(self) -> str:
        """The type as scripts declare it, without the name."""
        if self.extents is None:
            return str(self.type)
        return f"{self.dtype.short}[{', '.join(map(print_expr, self.extents))}]"


@dataclass(frozen=True, slots=True, eq=False)
class CallSignature:
    """What one function takes. `given` are passed by the caller; `sizes` follow from shapes of the tensors among them.

    variables: those of `given`, in order, which extents may mention.
    """

    function: str
    given: tuple[Parameter, ...]
    variables: tuple[Var, ...]
    sizes: tuple[Var, ...]
    result: DType | None

    @property
    def has_dependent_shapes(self) -> bool:
        """Whether extents mention scalars that the caller passes."""
        scalars = {v for v, p in zip(self.variables, self.given, strict=True) if not p.is_memory}
        return any(scalars & set(_variables(e)) for p in self.given for e in p.extents or ())

    def in_order(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments in the order of the parameters. LaunchError for names and numbers of arguments that do not
        fit."""
        if len(arguments) >= len(self.given):
            raise self.count_error(len(arguments) + len(keywords))
        names = [parameter.name for parameter in self.given]
        for name in keywords:
            if name not in names:
                raise LaunchError(f"{self.function} takes no argument {name!r}", hint=suggestion(name, names))
            if name in names[: len(arguments)]:
                raise LaunchError(f"{self.function} got a second value for argument {name}")
        rest = names[len(arguments) :]
        missing = [name for name in rest if name not in keywords]
        if missing:
            raise LaunchError(f"{self._taken}, and got none for {', '.join(missing)}")
        return (*arguments, *[keywords[name] for name in rest])

    def count_error(self, count: int) -> LaunchError:
        """The error for `count` arguments, which are too few or too many."""
        return LaunchError(f"{self._taken}, got {count}")

    @property
    def _taken(self) -> str:
        names = ", ".join(parameter.name for parameter in self.given)
        return f"{self.function} takes {len(self.given)} arguments ({names})"

    def sizes_of(self, facts: Sequence[TensorFacts | None], numbers: Sequence[Any], device: str) -> tuple[int, ...]:
        """The values of `sizes` for arguments with these facts (None for numbers), which are checked.

        numbers: the arguments, looked at where they are numbers. device: where tensors must be, "cpu" or "cuda:0".
        Raises DTypeError, ShapeError or LaunchError naming the argument and what was expected.
        """
        known: dict[Var, int] = {}
        pairs = list(zip(self.variables, self.given, facts, numbers, strict=True))
        for var, parameter, fact, number in pairs:
            if fact is None and parameter.dtype.is_int:
                known[var] = int(number)
        for _, parameter, fact, _ in pairs:
            if fact is not None:
                self._check_tensor(parameter, fact, device)
                self._bind(parameter, fact, known)
        for _, parameter, fact, _ in pairs:
            if fact is not None:
                self._check_shape(parameter, fact, known)
        missing = [var.name for var in self.sizes if var not in known]
        if missing:
            raise ShapeError(f"{self.function}: size {missing[0]} follows from no tensor that is passed")
        return tuple(known[var] for var in self.sizes)

    def shape_of(self, name: str, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """The shape that a tensor parameter has when parameters have the shapes, or are the numbers, in `arguments`.

        arguments: by parameter name. Sizes may be symbolic. ShapeError for a parameter of any shape, a tensor of
        another rank, and a size that nothing in `arguments` tells.
        """
        extents = next((parameter.extents for parameter in self.given if parameter.name == name), None)
        if extents is None:
            raise ShapeError(f"{self.function} has no parameter {name} with a shape")
        known = self._known(arguments)
        return tuple(_value(extent, known) for extent in extents)

    def sizes_from(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of `sizes`, as `shape_of` finds them. ShapeError for one that nothing tells."""
        known = self._known(arguments)
        return tuple(_value(size, known) for size in self.sizes)

    def _known(self, arguments: Mapping[str, Any]) -> dict[Var, Any]:
        known: dict[Var, Any] = {}
        for var, parameter in zip(self.variables, self.given, strict=True):
            if parameter.name not in arguments:
                continue
            argument = arguments[parameter.name]
            if not parameter.is_memory:
                known[var] = argument
            elif parameter.extents is not None:
                if len(parameter.extents) != len(argument):
                    raise ShapeError(
                        f"{self._what(parameter)} has {len(argument)} dims, expected {len(parameter.extents)}: "
                        f"{parameter}"
                    )
                for extent, actual in zip(parameter.extents, argument, strict=True):
                    if isinstance(extent, Var) and extent in self.sizes:
                        known.setdefault(extent, actual)
        return known

    def _what(self, parameter: Parameter) -> str:
        return f"argument {parameter.name} of {self.function}"

    def _check_tensor(self, parameter: Parameter, fact: TensorFacts, device: str) -> None:
        what = self._what(parameter)
        if fact.dtype != parameter.dtype:
            raise DTypeError(f"{what} has dtype {fact.dtype.name}, expected {parameter.dtype.name}")
        if fact.device != device:
            raise LaunchError(f"{what} is on {fact.device}, expected a tensor on {device}", hint="move it there first")
        if fact.obstacle is not None:
            raise LaunchError(f"{what} {fact.obstacle}", hint="pass a copy: .copy() of numpy's, .clone() of torch's")
        if not _is_contiguous(fact):
            raise LaunchError(
                f"{what} has strides {fact.strides} for shape {fact.shape}, expected a contiguous row-major tensor",
                hint="pass .contiguous() of it",
            )
        if parameter.is_written and not fact.is_writable:
            raise LaunchError(f"{what} is written, but must not be changed", hint="pass a copy")

    def _bind(self, parameter: Parameter, fact: TensorFacts, known: dict[Var, int]) -> None:
        extents = parameter.extents
        if extents is None:
            return
        if len(extents) != len(fact.shape):
            raise ShapeError(
                f"{self._what(parameter)} has shape {fact.shape}, expected {len(extents)} dims: {parameter}"
            )
        for extent, actual in zip(extents, fact.shape, strict=True):
            if isinstance(extent, Var) and extent in self.sizes:
                known.setdefault(extent, actual)

    def _check_shape(self, parameter: Parameter, fact: TensorFacts, known: Mapping[Var, int]) -> None:
        if parameter.extents is None:
            return
        expected = tuple(_value(extent, known) for extent in parameter.extents)
        if expected != fact.shape:
            raise ShapeError(f"{self._what(parameter)} has shape {fact.shape}, expected {expected}")


def signature_of(function: Function, written: frozenset[Var]) -> CallSignature:
    """What a function takes from Python."""
    count = len(function.params) - len(dict(function.attributes).get(SIZES, ()))  # type: ignore[arg-type]  # names
    given = tuple(Parameter(var.name, var.type, var in written) for var in function.params[:count])
    result = function.result
    for parameter in given:
        if not parameter.is_memory and parameter.dtype not in CELL_FORMATS:
            raise DTypeError(
                f"argument {parameter.name} of {function.name}: numbers of type {parameter.type} cannot be passed",
                hint="pass an f32 and convert it in the function",
            )
    if result is not None and (not isinstance(result, DType) or result not in CELL_FORMATS):
        raise DTypeError(f"{function.name} returns {result}, which cannot be passed to Python")
    return CallSignature(function.name, given, function.params[:count], function.params[count:], result)


def check_number(function: str, parameter: Parameter, argument: Any) -> None:
    """DTypeError unless `argument` is a number that `parameter` of a function holds."""
    what, dtype = f"argument {parameter.name} of {function}", parameter.dtype
    if dtype is dtypes.boolean and type(argument) is not bool:
        raise DTypeError(f"{what} is {argument!r}, expected True or False")
    try:
        struct.pack("<" + CELL_FORMATS[dtype], argument)
    except (struct.error, OverflowError, TypeError):
        raise number_error(what, argument, dtype) from None


def number_error(what: str, value: object, dtype: DType) -> DTypeError:
    """The error for `what`, which is a value that numbers of a type are not."""
    limits = f" from {dtype.min} to {dtype.max}" if dtype.is_int else ""
    kind = "an integer" if dtype.is_int else "a number"
    return DTypeError(f"{what} is {value!r}, expected {kind} of type {dtype}{limits}")


def _is_contiguous(fact: TensorFacts) -> bool:
    expected = 1
    for extent, stride in zip(reversed(fact.shape), reversed(fact.strides), strict=True):
        if extent != 1 and stride != expected and 0 not in fact.shape:
            return False
        expected *= extent
    return True


def _variables(expr: Expr) -> list[Var]:
    if isinstance(expr, Var):
        return [expr]
    return [var for child in expr.children() if isinstance(child, Expr) for var in _variables(child)]


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def _value(extent: Expr, known: Mapping[Var, int]) -> int:
    """An extent as a number. ShapeError for what extents are not made of."""
    if isinstance(extent, Const):
        return int(extent.value)  # type: ignore[arg-type]  # an integer
    if isinstance(extent, Var) and extent in known:
        return known[extent]
    if isinstance(extent, Cast):
        return _value(extent.a, known)
    if isinstance(extent, Binary) and extent.op in _ARITHMETIC:
        return _ARITHMETIC[extent.op](_value(extent.a, known), _value(extent.b, known))
    raise ShapeError(f"extent {print_expr(extent)} cannot be computed from the arguments")
