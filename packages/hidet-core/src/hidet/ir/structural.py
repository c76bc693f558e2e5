"""Structural identity of expressions, programs and compute definitions, independent of names and of sharing.

Every distinct sub-term becomes one line that refers to earlier lines by number, in order of first completion; variables
and operands are numbered in order of first appearance. Two things are equal exactly when their lines are. A tree and
the same tree with shared parts give the same lines, each node is visited once, and long statement lists need no
recursion. Nested `Seq`s count as flattened.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from hashlib import blake2b
from typing import Any

from hidet.dims import DimExpr
from hidet.dims.expr import structural_key
from hidet.dtypes import DType
from hidet.errors import VerifyError
from hidet.ir.combiner import Combiner
from hidet.ir.expr import Const, Var
from hidet.ir.func import Function, Module
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.node import IRNode
from hidet.ir.operand import Operand
from hidet.ir.stmt import Assert, Seq
from hidet.ir.types import BufferType, PointerType, VectorType


def structural_hash(thing: object, *more: object, operand_shapes: bool = False) -> str:
    """64 hexadecimal digits (BLAKE2b) that equal things share, in every process and on every machine.

    thing, more: expressions, statements, functions, modules, definitions and their stages, types, dims, numbers,
        strings, None and tuples of those; variables that several of them use are the same variable.
    operand_shapes: count the shapes of operands of definitions, not their ranks alone.

    Names of variables and operands do not count; types, operations, constants (by their bits), names of functions and
    facts about symbols do. Raises VerifyError for a thing without structural identity.
    """
    text = canonical_text((thing, *more), operand_shapes)
    return blake2b(text.encode(), digest_size=32).hexdigest()


def structural_equal(a: object, b: object, operand_shapes: bool = False) -> bool:
    """Whether `a` and `b` differ at most in the names of variables and operands; see `structural_hash`."""
    return canonical_text((a,), operand_shapes) == canonical_text((b,), operand_shapes)


def function_digest(function: Function) -> str:
    """What a function is known by, whatever its name is: 64 hexadecimal digits."""
    if function._digest is None:
        structural_hash(function)
    assert function._digest is not None
    return function._digest


def canonical_text(things: Sequence[object], operand_shapes: bool = False) -> str:
    """The lines described above, followed by one line that refers to them."""
    scope = _Scope(operand_shapes)
    last = scope.text(tuple(things))
    return "\n".join([*scope.lines, last])


class _Scope:
    """The lines and numbers of one name space: a function, or everything outside functions."""

    def __init__(self, operand_shapes: bool) -> None:
        self.operand_shapes = operand_shapes
        self.lines: dict[str, int] = {}
        self._nodes: dict[int, int] = {}
        self._vars: dict[Var, str] = {}
        self._operands: dict[Operand, str] = {}
        # By identity, which is quicker than by value: the things described keep their types alive.
        self._types: dict[int, str] = {}

    def node(self, root: IRNode) -> int:
        """The number of a node; its sub-terms are numbered first, children without children before others."""
        known = self._nodes
        stack: list[IRNode | None] = [root]
        while stack:
            current = stack.pop()
            if current is None:
                # What the node below is made of has its numbers.
                current = stack.pop()
                assert current is not None
            elif id(current) in known:
                continue
            elif current.child_fields:
                pending: list[IRNode | None] = []
                for child in _children(current):
                    if id(child) not in known:
                        if child.child_fields:
                            pending.append(child)
                        else:
                            self._number(child)
                if pending:
                    pending.reverse()
                    stack += (current, None, *pending)
                    continue
            self._number(current)
        return known[id(root)]

    def _number(self, node: IRNode) -> None:
        """Write the line of a node whose children have numbers."""
        known, lines = self._nodes, self.lines
        kind: Any = type(node)
        line = _line_writer(kind)(node, self, known, self._types)
        known[id(node)] = line if isinstance(line, int) else lines.setdefault(line, len(lines))

    def var(self, var: Var) -> str:
        """The line of a variable."""
        known = self._vars.get(var)
        if known is None:
            # The number is taken before the type is described: a buffer's shape may mention further variables.
            known = self._vars[var] = f"v{len(self._vars)}"
            known = self._vars[var] = f"{known}:{self.text(var.type)}"
        return known

    def operand(self, operand: Operand) -> str:
        known = self._operands.get(operand)
        if known is None:
            shape = self.text(operand.shape) if self.operand_shapes else str(len(operand.shape))
            known = self._operands[operand] = f"t{len(self._operands)}:{operand.dtype.name}[{shape}]"
        return known

    def value_type(self, type_: DType | VectorType | PointerType) -> str:
        known = self._types.get(id(type_))
        if known is None:
            known = self._types[id(type_)] = type_.name if isinstance(type_, DType) else str(type_)
        return known

    def buffer(self, type_: BufferType) -> str:
        strides = "-" if type_.strides is None else self.text(type_.strides)
        return f"{type_.dtype.name}x{type_.lanes}{self.text(type_.shape)}{{{strides}}}@{type_.space}"

    def function(self, function: Function) -> str:
        """A function has variables of its own: it is described by a scope of its own, and by a digest found once."""
        if function._digest is None:
            inner = _Scope(self.operand_shapes)
            head = [function.params, function.grid_vars, function.body]
            rest = [function.result, function.kind, function.attributes]
            last = " ".join([inner.text(value) for value in (*head, *rest)])
            digest = blake2b("\n".join([*inner.lines, last]).encode(), digest_size=32).hexdigest()
            object.__setattr__(function, "_digest", digest)
        return f"function {function.name!r} {function._digest}"

    def record(self, value: Any) -> str:
        """A module, definition or stage, field by field."""
        return (
            f"{type(value).__name__}({' '.join([self.text(getattr(value, f.name)) for f in fields(value) if f.init])})"
        )

    def text(self, value: Any) -> str:
        """One value as part of a line. Classes with an attribute `identity` count by their fields, or by their name."""
        kind = type(value)
        encode = _ENCODERS.get(kind)
        if encode is not None:
            return encode(self, value)
        if isinstance(value, IRNode):
            return str(self.node(value))
        identity = getattr(kind, "identity", None)
        if identity is not None:
            return self.record(value) if identity == "fields" else str(value.name)
        raise VerifyError(f"{kind.__name__} has no structural identity: {value!r}")


def _children(node: IRNode) -> Sequence[IRNode]:
    """The child nodes; those of a Seq are its statements, the statements of Seqs among them taken out."""
    if not isinstance(node, Seq):
        return node.children()
    flat: list[IRNode] = []
    pending = list(node.stmts[::-1])
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, Seq):
            pending.extend(stmt.stmts[::-1])
        else:
            flat.append(stmt)
    return flat


def _bits(value: object) -> str:
    """A number such that different bits give different text: -0.0, NaN payloads, 1 and True differ."""
    if isinstance(value, float):
        return value.hex() if value == value else f"nan{struct.pack('<d', value).hex()}"
    if isinstance(value, complex):
        return f"{_bits(value.real)}+{_bits(value.imag)}j"
    return repr(value)


def _sequence(scope: _Scope, value: Any) -> str:
    return f"({','.join([scope.text(item) for item in value])})"


_ENCODERS: dict[type, Callable[[_Scope, Any], str]] = {
    str: lambda scope, value: repr(value),
    bool: lambda scope, value: repr(value),
    int: lambda scope, value: repr(value),
    float: lambda scope, value: _bits(value),
    complex: lambda scope, value: _bits(value),
    type(None): lambda scope, value: "-",
    tuple: _sequence,
    list: _sequence,
    Operand: _Scope.operand,
    Combiner: lambda scope, value: value.name,
    DType: _Scope.value_type,
    VectorType: _Scope.value_type,
    PointerType: _Scope.value_type,
    BufferType: _Scope.buffer,
    DimExpr: lambda scope, value: f"<{structural_key(value)}>",
    Function: _Scope.function,
    Intrinsic: lambda scope, value: value.name,
    Module: _Scope.record,
}


LineWriter = Callable[[Any, _Scope, dict[int, int], dict[int, str]], str | int]


@cache
def _line_writer(kind: Any) -> LineWriter:
    """A function of (node, scope, its numbers of nodes by id, its texts of types by id) that writes the line of a node
    of this class.

    Its code is made from the fields of the class, because a compilation writes ten thousands of lines. Places in user
    code mean nothing but for assertions, which tell theirs when they fail. A `Seq` of one statement has no line: its
    number is that of the statement.
    """
    if kind is Var:
        return lambda node, scope, known, types: scope.var(node)
    if kind is Seq:
        return _sequence_line
    parts = [kind.__name__]
    for field in fields(kind):
        if field.name == "loc":
            if kind is Assert:
                parts.append("{node.loc!r}")
        else:
            parts.append(_field_text(kind, field.name, str(field.type)))
    made: LineWriter = eval(f'lambda node, scope, known, types: f"{" ".join(parts)}"', {"bits": _bits})
    return made


_PLAIN = ("str", "int", "tuple[int, ...]")


def _field_text(kind: type[IRNode], name: str, annotation: str) -> str:
    """The replacement field of an f-string for a field of `node`."""
    value = f"node.{name}"
    if name in kind.child_fields:
        if annotation.startswith("tuple"):
            return f"({{','.join([str(known[id(child)]) for child in {value}])}})"
        number = f"known[id({value})]"
        return f"{{'-' if {value} is None else {number}}}" if annotation.endswith("None") else f"{{{number}}}"
    if annotation == "Type":
        return f"{{types.get(id({value})) or scope.text({value})}}"
    if kind is Const and name == "value":
        return f"{{bits({value})}}"
    return f"{{{value}!r}}" if annotation in _PLAIN else f"{{scope.text({value})}}"


def _sequence_line(node: Any, scope: _Scope, known: dict[int, int], types: dict[int, str]) -> str | int:
    numbers = [known[id(stmt)] for stmt in _children(node)]
    return numbers[0] if len(numbers) == 1 else f"Seq ({','.join(map(str, numbers))})"
