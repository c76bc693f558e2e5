"""Translating the expressions of a script. What Python knows now is computed now; the rest becomes thread IR."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from typing import Any, NoReturn

from hidet import dtypes
from hidet.dims import DimExpr
from hidet.dtypes import DType
from hidet.errors import HidetError, ScriptError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.python_operators import PYTHON_OPERATORS
from hidet.ir.types import BufferType, PointerType, VectorType
from hidet.lang import build_time, operators
from hidet.lang.calls import translate_call
from hidet.lang.environment import Environment
from hidet.lang.evaluation import Evaluation
from hidet.lang.facts import IndexFacts
from hidet.lang.operand import unwrapped
from hidet.lang.source import FunctionSource
from hidet.lang.types import ValueKind
from hidet.lang.values import Bound, Cell, LatePointer, TensorValue, is_runtime

OPERATORS = {**PYTHON_OPERATORS, ast.Pow: "pow", ast.MatMult: "matmul"}
"""What the operators of scripts mean."""

_BUILD_TIME_TESTS: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
# What operators, calls and attributes of a user's values raise when these do not fit.
USUAL_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


class ExpressionTranslator(Evaluation):
    """Expressions of one script; the translator of statements extends it."""

    def __init__(self, source: FunctionSource, names: Environment) -> None:
        super().__init__(source)
        self.names = names
        self.target_name: str | None = None
        self.facts = IndexFacts()

    # --- errors ------------------------------------------------------------------------------------------------------

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        """Raise ScriptError at a node."""
        raise ScriptError(message, loc=self.place(node), hint=hint)

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Errors inside get the place of `node`, unless they have one."""
        try:
            yield
        except ScriptError as error:
            error.loc = error.loc or self.place(node)
            raise
        except HidetError as error:
            raise ScriptError(error.message, loc=self.place(node), hint=error.hint) from error
        except USUAL_ERRORS as error:
            text = ast.unparse(node).splitlines()[0]
            raise ScriptError(f"{text}: {type(error).__name__}: {error}", loc=self.place(node)) from error

    def locate(self, since: int, node: ast.AST) -> None:
        """Give the statements of the current block from number `since` on the place of `node`, if they have none."""
        loc = self.place(node)
        for number in range(since, len(self.stmts)):
            self.stmts[number] = _located(self.stmts[number], loc)

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """What an expression stands for: an expression of the thread IR, a tensor, or a Python value."""
        case = _CASES.get(type(node))
        if case is None:
            self.fail(node, f"{type(node).__name__} expressions have no meaning in a script: {ast.unparse(node)}")
        with self.at(node):
            return case(self, node)

    def expr(self, node: ast.expr) -> Expr:
        """An expression that must have a value in the program."""
        value = self.value(node)
        with self.at(node):
            return operators.as_expr(value)

    def known(self, node: ast.expr, what: str) -> Any:
        """A value that must be known while the script is translated."""
        value = self.value(node)
        if isinstance(value, Const):
            return value.value
        if is_runtime(value):
            self.fail(node, f"{what} must be known at build time, but {ast.unparse(node)} is known at run time only")
        return value

    def elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Values of the parts of a list or tuple, or of arguments; `*x` stands for the parts of x."""
        parts = self.in_order(*(partial(self._part, node) for node in nodes))
        return list(chain.from_iterable(parts))

    def _part(self, node: ast.expr) -> Sequence[Any]:
        return self.known_sequence(node.value) if isinstance(node, ast.Starred) else (self.value(node),)

    def known_sequence(self, node: ast.expr) -> Sequence[Any]:
        """A sequence whose length is known while the script is translated."""
        value = self.value(node)
        if isinstance(value, Expr | TensorValue):
            self.fail(node, f"{ast.unparse(node)} cannot be iterated over: its length is known at run time only")
        with self.at(node):
            return tuple(map(unwrapped, value))

    def name(self, node: ast.Name) -> Any:
        found = self.names.lookup(node.id)
        if isinstance(found, Cell):
            return found.read()
        return found.tensor if isinstance(found, LatePointer) else found

    def constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, complex | bytes):
            self.fail(node, f"{node.value!r} has no meaning in a script")
        return node.value

    def unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Invert):
            return self._invert(node)
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return operators.unary("lnot", value) if is_runtime(value) else not value
        if isinstance(node.op, ast.UAdd):
            return value
        return operators.unary("neg", value) if isinstance(value, Expr) else -value

    def _invert(self, node: ast.UnaryOp) -> Any:
        """`~x`: the address of a variable, element or tensor, the pointer type of a type, else the inverted bits."""
        operand = node.operand
        if isinstance(operand, ast.Name):
            named = self.names.lookup(operand.id)
            if isinstance(named, Cell):
                return named.address()
            if isinstance(named, Var) and not isinstance(named.type, BufferType):
                self.fail(
                    node, f"{operand.id} is no variable: it has no address", "give a variable its value; ~ of that"
                )
        if isinstance(operand, ast.Subscript):
            owner = self.value(operand.value)
            if isinstance(owner, TensorValue) or (isinstance(owner, Expr) and isinstance(owner.type, PointerType)):
                owner, keys = self.in_order(lambda: owner, partial(self.keys, operand))
                if isinstance(owner, TensorValue):
                    part = owner.part(keys)
                    return part.address([0] * len(part.shape))
                return build.address(owner, *map(operators.index, keys))
        value = self.value(operand)
        if isinstance(value, TensorValue):
            return value.address([0] * len(value.shape))
        if not isinstance(value, Expr):
            return ~value
        if isinstance(value.type, DType) and value.type.is_float:
            self.fail(node, f"~ of a value of type {value.type}, which lies nowhere", "give a variable the value first")
        return operators.unary("not", value)

    def binary(self, node: ast.BinOp) -> Any:
        return self.combine(OPERATORS[type(node.op)], *self.elements((node.left, node.right)))

    def combine(self, op: str, a: Any, b: Any) -> Any:
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

    def compare(self, node: ast.Compare) -> Any:
        """`a < b < c` is `a < b and b < c` in which b is computed once."""
        compared = [self.value(node.left)]

        def test(op: ast.cmpop, comparator: ast.expr) -> Any:
            a, b = self.in_order(compared.pop, partial(self.value, comparator))
            compared.append(b if comparator is node.comparators[-1] else self.once(b))
            return self._compared(op, a, *compared)

        return self.joined(True, map(partial, repeat(test), node.ops, node.comparators))

    def _compared(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        test = _BUILD_TIME_TESTS.get(type(op))
        if not isinstance(op, ast.Is | ast.IsNot):
            # Sizes are numbers that the program has: different symbols may be equal.
            a, b = (operators.as_expr(value) if isinstance(value, DimExpr) else value for value in (a, b))
        if test is None:
            return self.combine(OPERATORS[type(op)], a, b)
        if isinstance(op, ast.In | ast.NotIn) and (is_runtime(a) or is_runtime(b)):
            raise ScriptError("`in` looks among values known at build time", hint="compare with each of them")
        return test(a, b)

    def logical(self, node: ast.BoolOp) -> Any:
        return self.joined(isinstance(node.op, ast.And), (partial(self.value, operand) for operand in node.values))

    def joined(self, is_and: bool, operands: Iterator[Callable[[], Any]]) -> Any:
        """`and` or `or` of what `operands` compute: those that Python knows decide now, the others at run time.

        One that takes statements is a branch of the program, as those before it may decide without it.
        """
        value: Any = is_and
        result: Expr | None = None
        for operand in operands:
            stmts, value = self.apart(operand)
            if stmts and result is not None:
                return self._joined_by_branch(is_and, result, stmts, value, operands)
            self.stmts += stmts
            if is_runtime(value):
                test = operators.condition(value)
                result = test if result is None else operators.binary("land" if is_and else "lor", result, test)
            elif bool(value) != is_and:
                self.once(result)
                return value if result is None else not is_and
        return value if result is None else result

    def _joined_by_branch(
        self, is_and: bool, before: Expr, stmts: Sequence[s.Stmt], value: Any, operands: Iterator[Callable[[], Any]]
    ) -> Any:
        """`joined` of operands that give `before`, one that is `value` after `stmts`, and further ones."""
        result = Var("result", dtypes.boolean)
        self.stmts.append(s.Declare(result, before))
        with self.collecting() as block:
            block += stmts
            rest = self.joined(is_and, chain((lambda: value,), operands))
            if is_runtime(rest):
                block.append(s.Assign(result, operators.condition(rest)))
        self.stmts.append(s.If(result if is_and else operators.unary("lnot", result), build.seq(block)))
        is_decided = not is_runtime(rest) and bool(rest) != is_and
        return not is_and if is_decided else result

    def conditional(self, node: ast.IfExp) -> Any:
        test = self.value(node.test)
        if not is_runtime(test):
            return self.value(node.body if test else node.orelse)
        (then, a), (otherwise, b) = (self.apart(partial(self.value, part)) for part in (node.body, node.orelse))
        if not then and not otherwise:
            return operators.select(test, a, b)
        result = None
        if is_runtime((a, b)) or a is not b:
            first, second = operators.alike(a, b)
            result = Var("result", first.type)
            self.stmts.append(s.Declare(result))
            then.append(s.Assign(result, first))
            otherwise.append(s.Assign(result, second))
        self.stmts.append(s.If(operators.condition(test), build.seq(then), build.seq(otherwise), self.place(node)))
        return a if result is None else result

    def subscript(self, node: ast.Subscript) -> Any:
        owner, keys = self.in_order(partial(self.value, node.value), partial(self._keys, node.slice))
        if isinstance(owner, TensorValue):
            keys = flat(keys)
            is_element = len(keys) == len(owner.shape) and not any(isinstance(key, slice) for key in keys)
            # Where a part starts is said twice: it is part of its extent, too.
            return owner.read(keys) if is_element else owner.part(self.once(keys))
        if isinstance(owner, Expr):
            return self._element_of(node, owner, keys)
        key = keys[0] if len(keys) == 1 and not isinstance(node.slice, ast.Tuple) else tuple(keys)
        if is_runtime(key) and not isinstance(owner, ValueKind):
            what = f"an index into a Python {type(owner).__name__} must be known at build time"
            self.fail(node.slice, what, "pass the values as a tensor, which the program can index")
        return unwrapped(owner[key])

    def _element_of(self, node: ast.Subscript, owner: Expr, keys: Sequence[Any]) -> Expr:
        if len(keys) != 1 or isinstance(keys[0], slice):
            self.fail(node, f"a {owner.type} takes one index")
        if isinstance(owner.type, PointerType | BufferType):
            return build.load(owner, operators.index(keys[0]))
        if isinstance(owner.type, VectorType) and isinstance(keys[0], int) and 0 <= keys[0] < owner.type.lanes:
            return build.extract(owner, keys[0])
        self.fail(node, f"a value of type {owner.type} has no element {ast.unparse(node.slice)}")

    def _keys(self, node: ast.expr) -> list[Any]:
        return self.elements(node.elts if isinstance(node, ast.Tuple) else [node])

    def keys(self, node: ast.Subscript) -> list[Any]:
        """The indices and slices of a subscript of memory, those in tuples one by one."""
        return flat(self._keys(node.slice))

    def slice(self, node: ast.Slice) -> slice:
        bounds = [ast.Constant(None) if part is None else part for part in (node.lower, node.upper, node.step)]
        return slice(*self.elements(bounds))

    def attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, TensorValue):
            if node.attr in ("read", "write"):
                return Bound(node.attr, owner)
            if node.attr not in ("shape", "dtype", "layout"):
                self.fail(
                    node, f"a tensor of a script has no {node.attr!r}", "it has shape, dtype, layout, read, write"
                )
            found = getattr(owner, node.attr)
            return ValueKind(found) if node.attr == "dtype" else found
        if isinstance(owner, Expr):
            if node.attr != "dtype":
                self.fail(node, f"a value of type {owner.type} has no {node.attr!r}", "it has dtype")
            return ValueKind(owner.dtype)
        return unwrapped(getattr(owner, node.attr))

    # --- names -----------------------------------------------------------------------------------------------------

    @contextmanager
    def block(self, is_branch: bool, is_function: bool = False) -> Iterator[None]:
        """Names bound inside are gone after."""
        self.names.enter(is_branch, is_function)
        try:
            yield
        finally:
            self.names.leave()

    def bind_parts(self, target: ast.expr, value: Any) -> None:
        """Bind a name, or names in a tuple, to a value as it is."""
        if isinstance(target, ast.Name):
            self.names.bind(target.id, value)
            return
        if not isinstance(target, ast.Tuple | ast.List):
            self.fail(target, f"expected a name, found {ast.unparse(target)}")
        parts = tuple(map(unwrapped, value))
        if len(parts) != len(target.elts):
            self.fail(target, f"{len(target.elts)} names for {len(parts)} values")
        for element, part in zip(target.elts, parts, strict=True):
            self.bind_parts(element, part)


def flat(keys: Sequence[Any]) -> list[Any]:
    """Indices, with tuples and lists among them replaced by their parts: `a[i, (j, k)]` is `a[i, j, k]`."""
    return [part for key in keys for part in (flat(key) if isinstance(key, tuple | list) else (key,))]


def _located(stmt: s.Stmt, loc: Any) -> s.Stmt:
    if getattr(stmt, "loc", loc) is not None:
        return stmt
    fields = {name: getattr(stmt, name) for name in (*stmt.child_fields, *stmt.attribute_fields)}
    made: s.Stmt = type(stmt)(**{**fields, "loc": loc})
    return made


def _no_numbers(a: object, b: object) -> ScriptError:
    return ScriptError(
        f"an operator takes numbers, got {operators.described(a)} and {operators.described(b)}",
        hint="a script computes with elements: x[i], in a loop over i",
    )


_CASES: dict[type[ast.AST], Callable[[ExpressionTranslator, Any], Any]] = {
    ast.Name: ExpressionTranslator.name,
    ast.Constant: ExpressionTranslator.constant,
    ast.UnaryOp: ExpressionTranslator.unary,
    ast.BinOp: ExpressionTranslator.binary,
    ast.Compare: ExpressionTranslator.compare,
    ast.BoolOp: ExpressionTranslator.logical,
    ast.IfExp: ExpressionTranslator.conditional,
    ast.Subscript: ExpressionTranslator.subscript,
    ast.Slice: ExpressionTranslator.slice,
    ast.Attribute: ExpressionTranslator.attribute,
    ast.Call: translate_call,
    ast.Tuple: lambda translator, node: tuple(translator.elements(node.elts)),
    ast.List: lambda translator, node: translator.elements(node.elts),
    **build_time.CASES,
    ast.Set: lambda translator, node: set(translator.elements(node.elts)),
}
