"""Functions of expressions, which `hidet.ir.expr` has: for definitions, builders, and Python code that scripts call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hidet import dims
from hidet.dims import DimExpr
from hidet.ir import build
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.type import Kind
from hidet.ir.types import BufferType, PointerType, Type
from hidet.lang import operators
from hidet.lang.operand import Operand as Element
from hidet.lang.operand import unwrapped, wrapped
from hidet.lang.types import TensorKind, dtype_of, value_type


class Value(Element):
    """A variable: a number to compute with, or memory to be indexed."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # variables are keys of tables
        return hash(self.expr)

    def __getitem__(self, indices: Any) -> Any:
        given = indices if isinstance(indices, tuple) else (indices,)
        return wrapped(build.load(self.expr, *(operators.index(unwrapped(index)) for index in given)))


class ExprKind(metaclass=Kind):
    """`hidet.ir.Expr`: any expression, sizes that are known at run time only among them."""

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one."""
        return isinstance(instance, Expr | Element | DimExpr)


class VarKind(ExprKind):
    """`hidet.ir.Var`: any variable; `Var("x", "float32")` makes one."""

    def __new__(cls, hint: str, type: Any, name: str | None = None) -> Value:  # type: ignore[misc]  # what users know as the variable
        return var(hint, type)

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one."""
        return isinstance(unwrapped(instance), Var) or SymbolKind.holds(instance)


class SymbolKind(ExprKind):
    """`hidet.ir.SymbolVar`: a size by name, which `hidet.symbol_var("n")` makes."""

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one, and no formula of some."""
        return isinstance(instance, DimExpr) and [*map(dims.as_dim, dims.symbols(instance))] == [instance]


class ConstantKind(ExprKind):
    """`hidet.ir.Constant`: any number of a program; `Constant(1, "int32")` makes one."""

    def __new__(cls, value: Any, const_type: Any = None) -> Any:
        return constant(value, const_type)

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one."""
        return isinstance(unwrapped(instance), Const)


def type_of(given: Any) -> Type:
    """What programs know as the type of a variable that a script declares so."""
    if not isinstance(given, TensorKind):
        return value_type(given)
    if given.is_pointer or given.layout is not None:
        return PointerType(given.dtype, given.space)
    return BufferType(given.dtype, tuple(map(build.index, given.shape)), None, given.space)


def var(hint: str, dtype: Any = "int32") -> Value:
    """A new variable of a type of scripts."""
    return Value(Var(hint, type_of(dtype)))


scalar_var = var


def tensor_var(hint: str, shape: Sequence[Any], dtype: Any = "float32") -> Value:
    """A new variable that is a tensor."""
    return Value(Var(hint, type_of(TensorKind(dtype_of(dtype), tuple(shape)))))


def index_vars(names: Sequence[str]) -> list[Value]:
    """New variables of integers."""
    return [var(name, "int64") for name in names]


symbol_var = dims.symbol


def constant(value: Any, const_type: Any = None) -> Any:
    """A number of a type; of i64, f32 or bool where none is given."""
    return wrapped(operators.as_expr(value) if const_type is None else build.const(value, dtype_of(const_type)))


def convert(value: Any, dtype: Any = None) -> Any:
    """An expression as it is, a number as one of a type."""
    return value if isinstance(value, ExprKind) else constant(value, dtype)


def if_then_else(cond: Any, then_expr: Any, else_expr: Any) -> Any:
    """One value where a condition holds, else the other; memory is read for the one that is taken alone."""
    given = (unwrapped(part) for part in (cond, then_expr, else_expr))
    return wrapped(operators.select(*given))


def cast(expr: Any, dtype: Any) -> Any:
    """A value as one of another type."""
    return wrapped(operators.cast(unwrapped(expr), value_type(dtype)))


def _binary(op: str, doc: str) -> Callable[[Any, Any], Any]:
    def compute(a: Any, b: Any) -> Any:
        return wrapped(operators.binary(op, unwrapped(a), unwrapped(b)))

    compute.__doc__ = doc
    return compute


equal = _binary("eq", "Whether two values are equal, as an expression.")
not_equal = _binary("ne", "Whether two values differ.")
less_than = _binary("lt", "a < b")
less_equal = _binary("le", "a <= b")
left_shift = _binary("shl", "a << b")
right_shift = _binary("shr", "a >> b")
bitwise_and = _binary("and", "a & b")
bitwise_or = _binary("or", "a | b")
bitwise_xor = _binary("xor", "a ^ b")


def _all_of(op: str, neutral: bool) -> Callable[..., Any]:
    def compute(*conditions: Any) -> Any:
        result: Any = neutral
        for condition in conditions:
            result = operators.binary(op, operators.as_expr(result), unwrapped(condition))
        return wrapped(operators.as_expr(result))

    compute.__doc__ = f"Whether {'all' if neutral else 'some'} of the conditions hold."
    return compute


logical_and = _all_of("land", True)
logical_or = _all_of("lor", False)


def logical_not(condition: Any) -> Any:
    """Whether a condition does not hold."""
    return wrapped(operators.unary("lnot", unwrapped(condition)))


def is_constant(*values: Any) -> bool:
    """Whether all are numbers, of Python or of a program."""
    return all(isinstance(unwrapped(value), bool | int | float | Const) for value in values)


def is_zero(value: Any) -> bool:
    """Whether it is the number 0."""
    return is_constant(value) and _number(value) == 0


def is_one(value: Any) -> bool:
    """Whether it is the number 1."""
    return is_constant(value) and _number(value) == 1


def _number(value: Any) -> Any:
    plain = unwrapped(value)
    return plain.value if isinstance(plain, Const) else plain


def infer_type(expr: Any) -> Any:
    """The type of an expression, or of a number in one."""
    return operators.as_expr(unwrapped(expr)).type
