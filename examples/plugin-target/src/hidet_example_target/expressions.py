"""Expressions of one function as C: parts that are used once stay inside, those that are shared become variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import walk
from hidet_example_target.spelling import binary, cast, literal, memory_type, symbol, unary, value_type

LONGEST = 160
"""Characters of an expression; what is longer is computed in several statements."""

_OWN = {"poll": "((void)0)", "prefetch": "((void)0)"}
"""Intrinsics of every target that this one has nothing to do for: Ctrl-C is seen when a call has ended."""


class ExpressionPrinter:
    """Expressions, and the lines that have to stand before them.

    declare: called with a function that another module defines and how C declares it.
    """

    def __init__(self, target: str, declare: Callable[[str, str], None]) -> None:
        self.target = target
        self.declare = declare
        self.lines: list[str] = []
        self.names: dict[e.Var, str] = {}
        self._count = 0
        self._uses: Counter[e.Expr] = Counter()
        self._known: dict[e.Expr, str] = {}

    def fresh(self, name: str) -> str:
        """A C name that nothing else in the function has."""
        self._count += 1
        return f"{name if name.isascii() and name.isidentifier() else 'v'}_{self._count}"

    def begin(self, *roots: e.Expr) -> list[str]:
        """The values of a statement's expressions, evaluated anew."""
        self._known, self._uses = {}, Counter()
        for root in roots:
            self._uses[root] += 1
            for node in walk(root):
                self._uses.update(child for child in node.children() if isinstance(child, e.Expr))
        return [self.value(root) for root in roots]

    def value(self, node: e.Expr) -> str:
        """C text that gives the value of a part of a statement's expressions."""
        known = self._known.get(node)
        if known is not None:
            return known
        case = _CASES.get(type(node))
        if case is None:
            raise CodegenError(
                f"target example-c has no expression {type(node).__name__}", hint="it has no SIMD values"
            )
        text = case(self, node)
        is_shared = self._uses[node] > 1 and node.children()
        if node.type is not None and (is_shared or len(text) > LONGEST):
            text = self.variable(node.type, text)
        self._known[node] = text
        return text

    def variable(self, type_: Any, text: str, name: str = "t") -> str:
        """A new C variable with a value."""
        fresh = self.fresh(name)
        self.lines.append(f"{value_type(type_)} {fresh} = {text};")
        return fresh

    def place(self, buffer: e.Expr, indices: Sequence[e.Expr]) -> str:
        """An element in memory."""
        offset = indices[0] if isinstance(buffer.type, PointerType) else _offset(buffer, indices)
        return f"{self.value(buffer)}[{self.value(offset)}]"

    def aside(self, node: e.Expr) -> tuple[list[str], str]:
        """Lines and text of a part that may not be evaluated: nothing after it relies on its variables."""
        lines, known = self.lines, dict(self._known)
        self.lines = []
        text = self.value(node)
        own, self.lines, self._known = self.lines, lines, known
        return own, text

    def _binary(self, node: e.Binary) -> str:
        if isinstance(node.a.type, PointerType):
            return f"({self.value(node.a)} {'+' if node.op == 'add' else '-'} {self.value(node.b)})"
        if node.op in ("land", "lor") and _reads(node.b):
            known = build.const(node.op == "lor", node.dtype)
            return self._choice(node, node.a, *((node.b, known) if node.op == "land" else (known, node.b)))
        return binary(node.op, self.value(node.a), self.value(node.b), node.a.dtype)

    def _select(self, node: e.Select) -> str:
        return self._choice(node, node.condition, node.a, node.b)

    def _choice(self, node: e.Expr, condition: e.Expr, a: e.Expr, b: e.Expr) -> str:
        """`a` or `b`. A side that reads memory is evaluated where it is chosen: elsewhere it may not be there."""
        chosen = self.value(condition)
        if not (_reads(a) or _reads(b)):
            return f"({chosen} ? {self.value(a)} : {self.value(b)})"
        (before_a, text_a), (before_b, text_b) = self.aside(a), self.aside(b)
        if not (before_a or before_b):
            return f"({chosen} ? {text_a} : {text_b})"
        result = self.fresh("t")
        self.lines += [f"{value_type(node.type)} {result};", f"if ({chosen}) {{", *before_a, f"{result} = {text_a};"]
        self.lines += ["} else {", *before_b, f"{result} = {text_b};", "}"]
        return result

    def _bitcast(self, node: e.Bitcast) -> str:
        source, target = value_type(node.a.type), value_type(node.type)
        if isinstance(node.type, PointerType) or isinstance(node.a.type, PointerType | BufferType):
            return f"(({target})(intptr_t){self.value(node.a)})"
        return f"((union {{ {source} a; {target} b; }}){{ {self.value(node.a)} }}).b"

    def _cast(self, node: e.Cast) -> str:
        if isinstance(node.type, PointerType):
            return f"(({value_type(node.type)}){self.value(node.a)})"
        return cast(self.value(node.a), node.a.dtype, node.dtype)

    def _load(self, node: e.Load) -> str:
        value_type(node.type)  # which refuses SIMD values
        element = self.place(node.buffer, node.indices)
        return f"({element} != 0)" if node.dtype.is_bool else element

    def _call(self, node: e.Call) -> str:
        arguments = [self.value(argument) for argument in node.arguments]
        if node.intrinsic is not None:
            return self._intrinsic(node, arguments)
        if "." in node.callee:
            raise CodegenError(f"target example-c is linked with no {node.callee}")
        types = ", ".join(value_type(argument.type) for argument in node.arguments)
        result = "void" if node.type is None else value_type(node.type)
        self.declare(node.callee, f"{result} {symbol(node.callee)}({types});")
        return f"{symbol(node.callee)}({', '.join(arguments)})"

    def _intrinsic(self, node: e.Call, arguments: Sequence[str]) -> str:
        """As this target writes it, or as the wheel that it comes from says."""
        if node.callee == "fma" and node.dtype.name in ("float32", "float64"):
            return f"{'fmaf' if node.dtype.bits == 32 else 'fma'}({', '.join(arguments)})"
        assert node.intrinsic is not None
        spelling = _OWN.get(node.callee) or node.intrinsic.family.spelling(self.target, node.callee)
        if spelling is None:
            family = node.intrinsic.family.name
            raise CodegenError(
                f"intrinsic {node.callee} of {family} has no spelling for target {self.target}",
                hint=f'IntrinsicFamily(spellings={{"{self.target}": "module:TABLE"}}) gives one',
            )
        text = str(spelling).format(*arguments)
        return text if node.type is None else f"(({value_type(node.type)}){text})"


def _reads(node: e.Expr) -> bool:
    return any(isinstance(part, e.Load | e.Call) for part in walk(node))


def _offset(buffer: e.Expr, indices: Sequence[e.Expr]) -> e.Expr:
    """How many elements after the first one an element of a buffer lies."""
    type_ = buffer.type
    assert isinstance(type_, BufferType)
    if type_.strides is not None:
        return build.flatten(indices, type_.strides)
    strides = [build.index(1)]
    for extent in type_.shape[:0:-1]:
        strides.insert(0, strides[0] * extent)
    return build.flatten(indices, strides[-len(indices) :] if indices else [])


def _var(printer: ExpressionPrinter, node: e.Var) -> str:
    return printer.names[node]


def _unary(printer: ExpressionPrinter, node: e.Unary) -> str:
    return unary(node.op, printer.value(node.a), node.a.dtype)


_CASES: dict[type, Callable[[ExpressionPrinter, Any], str]] = {
    e.Var: _var,
    e.Const: lambda printer, node: literal(node.value, node.type),
    e.Unary: _unary,
    e.Binary: ExpressionPrinter._binary,
    e.Select: ExpressionPrinter._select,
    e.Cast: ExpressionPrinter._cast,
    e.Bitcast: ExpressionPrinter._bitcast,
    e.Load: ExpressionPrinter._load,
    e.AddressOf: lambda printer, node: f"(&{printer.place(node.buffer, node.indices)})",
    e.Call: ExpressionPrinter._call,
}


def array(var: e.Var, name: str) -> str:
    """The declaration of a local array. CodegenError where its size is not known."""
    type_ = var.type
    assert isinstance(type_, BufferType)
    count = type_.lanes
    for extent in type_.shape:
        if not isinstance(extent, e.Const):
            raise CodegenError(f"local array {var.name} needs a constant shape")
        count *= int(extent.value)  # type: ignore[arg-type]  # extents are integers
    return f"{memory_type(type_.dtype)} {name}[{max(count, 1)}];"
