"""Translating the expressions of a script. What Python knows now is computed now; the rest becomes thread IR."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.dims import DimExpr
from hidet.dtypes import DType
from hidet.errors import ScriptError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.python_operators import PYTHON_OPERATORS
from hidet.ir.types import BufferType, PointerType, VectorType
from hidet.lang import operators
from hidet.lang.operand import unwrapped
from hidet.lang.types import ValueKind
from hidet.lang.values import Bound, Cell, LatePointer, TensorValue, is_runtime

if TYPE_CHECKING:
    from hidet.lang.translator import Translator

OPERATORS = {**PYTHON_OPERATORS, ast.Pow: "pow", ast.MatMult: "matmul"}
"""What the operators of scripts mean."""

_BUILD_TIME_TESTS: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def _name(translator: Translator, node: ast.Name) -> Any:
    found = translator.names.lookup(node.id)
    if isinstance(found, Cell):
        return found.read()
    return found.tensor if isinstance(found, LatePointer) else found


def _constant(translator: Translator, node: ast.Constant) -> Any:
    if isinstance(node.value, complex | bytes):
        translator.fail(node, f"{node.value!r} has no meaning in a script")
    return node.value


def _unary(translator: Translator, node: ast.UnaryOp) -> Any:
    if isinstance(node.op, ast.Invert):
        return _invert(translator, node)
    value = translator.value(node.operand)
    if isinstance(node.op, ast.Not):
        return operators.unary("lnot", value) if is_runtime(value) else not value
    if isinstance(node.op, ast.UAdd):
        return value
    return operators.unary("neg", value) if isinstance(value, Expr) else -value


def _invert(translator: Translator, node: ast.UnaryOp) -> Any:
    """`~x`: the address of a variable, element or tensor, the pointer type of a type, else the inverted bits."""
    operand = node.operand
    if isinstance(operand, ast.Name):
        named = translator.names.lookup(operand.id)
        if isinstance(named, Cell):
            return named.address()
        if isinstance(named, Var) and not isinstance(named.type, BufferType):
            translator.fail(
                node, f"{operand.id} is no variable: it has no address", "give a variable its value; ~ of that"
            )
    if isinstance(operand, ast.Subscript):
        owner = translator.value(operand.value)
        if isinstance(owner, TensorValue) or (isinstance(owner, Expr) and isinstance(owner.type, PointerType)):
            owner, keys = translator.in_order(lambda: owner, partial(flat_keys, translator, operand))
            if isinstance(owner, TensorValue):
                part = owner.part(keys)
                return part.address([0] * len(part.shape))
            return build.address(owner, *map(operators.index, keys))
    value = translator.value(operand)
    if isinstance(value, TensorValue):
        return value.address([0] * len(value.shape))
    if not isinstance(value, Expr):
        return ~value
    if isinstance(value.type, DType) and value.type.is_float:
        translator.fail(
            node, f"~ of a value of type {value.type}, which lies nowhere", "give a variable the value first"
        )
    return operators.unary("not", value)


def _binary(translator: Translator, node: ast.BinOp) -> Any:
    return combine(translator, OPERATORS[type(node.op)], *translator.elements((node.left, node.right)))


def combine(translator: Translator, op: str, a: Any, b: Any) -> Any:
    """Apply an operator to two values."""
    if isinstance(a, Expr) or isinstance(b, Expr):
        if isinstance(a, TensorValue | str) or isinstance(b, TensorValue | str):
            raise _no_numbers(a, b)
        if op == "matmul":
            raise ScriptError("@ has no meaning for values of the program")
        return operators.binary(op, a, b)
    if isinstance(a, TensorValue) and op in ("add", "sub") and isinstance(b, int):
        return operators.binary(op, a.start(), b)
    if isinstance(a, TensorValue) or isinstance(b, TensorValue):
        raise _no_numbers(a, b)
    return operators.PYTHON_BINARY[op](a, b)


def _compare(translator: Translator, node: ast.Compare) -> Any:
    """`a < b < c` is `a < b and b < c` in which b is computed once."""
    compared = [translator.value(node.left)]

    def test(op: ast.cmpop, comparator: ast.expr) -> Any:
        a, b = translator.in_order(compared.pop, partial(translator.value, comparator))
        compared.append(b if comparator is node.comparators[-1] else translator.once(b))
        return _compared(translator, op, a, *compared)

    return joined(translator, True, map(partial, repeat(test), node.ops, node.comparators))


def _compared(translator: Translator, op: ast.cmpop, a: Any, b: Any) -> Any:
    test = _BUILD_TIME_TESTS.get(type(op))
    if not isinstance(op, ast.Is | ast.IsNot):
        # Sizes are numbers that the program has: different symbols may be equal.
        a, b = (operators.as_expr(value) if isinstance(value, DimExpr) else value for value in (a, b))
    if test is None:
        return combine(translator, OPERATORS[type(op)], a, b)
    if isinstance(op, ast.In | ast.NotIn) and (is_runtime(a) or is_runtime(b)):
        raise ScriptError("`in` looks among values known at build time", hint="compare with each of them")
    return test(a, b)


def _logical(translator: Translator, node: ast.BoolOp) -> Any:
    return joined(
        translator, isinstance(node.op, ast.And), (partial(translator.value, operand) for operand in node.values)
    )


def joined(translator: Translator, is_and: bool, operands: Iterator[Callable[[], Any]]) -> Any:
    """`and` or `or` of what `operands` compute: those that Python knows decide now, the others at run time.

    One that takes statements is a branch of the program, as those before it may decide without it.
    """
    value: Any = is_and
    result: Expr | None = None
    for operand in operands:
        stmts, value = translator.apart(operand)
        if stmts and result is not None:
            return _joined_by_branch(translator, is_and, result, stmts, value, operands)
        translator.stmts += stmts
        if is_runtime(value):
            test = operators.condition(value)
            result = test if result is None else operators.binary("land" if is_and else "lor", result, test)
        elif bool(value) != is_and:
            translator.once(result)
            return value if result is None else not is_and
    return value if result is None else result


def _joined_by_branch(
    translator: Translator,
    is_and: bool,
    before: Expr,
    stmts: Sequence[s.Stmt],
    value: Any,
    operands: Iterator[Callable[[], Any]],
) -> Any:
    """`joined` of operands that give `before`, one that is `value` after `stmts`, and further ones."""
    result = Var("result", dtypes.boolean)
    translator.stmts.append(s.Declare(result, before))
    with translator.collecting() as block:
        block += stmts
        rest = joined(translator, is_and, chain((lambda: value,), operands))
        if is_runtime(rest):
            block.append(s.Assign(result, operators.condition(rest)))
    translator.stmts.append(s.If(result if is_and else operators.unary("lnot", result), build.seq(block)))
    is_decided = not is_runtime(rest) and bool(rest) != is_and
    return not is_and if is_decided else result


def _conditional(translator: Translator, node: ast.IfExp) -> Any:
    test = translator.value(node.test)
    if not is_runtime(test):
        return translator.value(node.body if test else node.orelse)
    (then, a), (otherwise, b) = (translator.apart(partial(translator.value, part)) for part in (node.body, node.orelse))
    if not then and not otherwise:
        return operators.select(test, a, b)
    result = None
    if is_runtime((a, b)) or a is not b:
        first, second = operators.alike(a, b)
        result = Var("result", first.type)
        translator.stmts.append(s.Declare(result))
        then.append(s.Assign(result, first))
        otherwise.append(s.Assign(result, second))
    translator.stmts.append(
        s.If(operators.condition(test), build.seq(then), build.seq(otherwise), translator.place(node))
    )
    return a if result is None else result


def _subscript(translator: Translator, node: ast.Subscript) -> Any:
    owner, keys = translator.in_order(partial(translator.value, node.value), partial(_keys, translator, node.slice))
    if isinstance(owner, TensorValue):
        keys = flat(keys)
        is_element = len(keys) == len(owner.shape) and not any(isinstance(key, slice) for key in keys)
        # Where a part starts is said twice: it is part of its extent, too.
        return owner.read(keys) if is_element else owner.part(translator.once(keys))
    if isinstance(owner, Expr):
        return _element_of(translator, node, owner, keys)
    key = keys[0] if len(keys) == 1 and not isinstance(node.slice, ast.Tuple) else tuple(keys)
    if is_runtime(key) and not isinstance(owner, ValueKind):
        what = f"an index into a Python {type(owner).__name__} must be known at build time"
        translator.fail(node.slice, what, "pass the values as a tensor, which the program can index")
    return unwrapped(owner[key])


def _element_of(translator: Translator, node: ast.Subscript, owner: Expr, keys: Sequence[Any]) -> Expr:
    if len(keys) != 1 or isinstance(keys[0], slice):
        translator.fail(node, f"a {owner.type} takes one index")
    if isinstance(owner.type, PointerType | BufferType):
        return build.load(owner, operators.index(keys[0]))
    if isinstance(owner.type, VectorType) and isinstance(keys[0], int) and 0 <= keys[0] < owner.type.lanes:
        return build.extract(owner, keys[0])
    translator.fail(node, f"a value of type {owner.type} has no element {ast.unparse(node.slice)}")


def _keys(translator: Translator, node: ast.expr) -> list[Any]:
    return translator.elements(node.elts if isinstance(node, ast.Tuple) else [node])


def flat_keys(translator: Translator, node: ast.Subscript) -> list[Any]:
    """The indices and slices of a subscript of memory, those in tuples one by one."""
    return flat(_keys(translator, node.slice))


def _slice(translator: Translator, node: ast.Slice) -> slice:
    bounds = [ast.Constant(None) if part is None else part for part in (node.lower, node.upper, node.step)]
    return slice(*translator.elements(bounds))


def _attribute(translator: Translator, node: ast.Attribute) -> Any:
    owner = translator.value(node.value)
    if isinstance(owner, TensorValue):
        if node.attr in ("read", "write"):
            return Bound(node.attr, owner)
        if node.attr not in ("shape", "dtype", "layout"):
            translator.fail(
                node, f"a tensor of a script has no {node.attr!r}", "it has shape, dtype, layout, read, write"
            )
        found = getattr(owner, node.attr)
        return ValueKind(found) if node.attr == "dtype" else found
    if isinstance(owner, Expr):
        if node.attr != "dtype":
            translator.fail(node, f"a value of type {owner.type} has no {node.attr!r}", "it has dtype")
        return ValueKind(owner.dtype)
    return unwrapped(getattr(owner, node.attr))


def flat(keys: Sequence[Any]) -> list[Any]:
    """Indices, with tuples and lists among them replaced by their parts: `a[i, (j, k)]` is `a[i, j, k]`."""
    return [part for key in keys for part in (flat(key) if isinstance(key, tuple | list) else (key,))]


def _no_numbers(a: object, b: object) -> ScriptError:
    return ScriptError(
        f"an operator takes numbers, got {operators.described(a)} and {operators.described(b)}",
        hint="a script computes with elements: x[i], in a loop over i",
    )


CASES: dict[type[ast.AST], Callable[[Translator, Any], Any]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.Compare: _compare,
    ast.BoolOp: _logical,
    ast.IfExp: _conditional,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Attribute: _attribute,
    ast.Tuple: lambda translator, node: tuple(translator.elements(node.elts)),
    ast.List: lambda translator, node: translator.elements(node.elts),
    ast.Set: lambda translator, node: set(translator.elements(node.elts)),
}
"""class of an expression -> what it stands for"""
