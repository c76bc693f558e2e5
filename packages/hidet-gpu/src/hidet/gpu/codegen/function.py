"""Functions and statements of the thread IR in C and C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.gpu.codegen.expression import ExpressionEmitter
from hidet.gpu.codegen.memory import ACCESSES, spell_offset, spell_place
from hidet.gpu.codegen.names import CNames
from hidet.gpu.codegen.prelude import Prelude
from hidet.gpu.codegen.signs import is_natural
from hidet.gpu.codegen.spelling import element_type
from hidet.gpu.codegen.text import SUM, infix
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function
from hidet.ir.node import IRNode
from hidet.ir.types import BufferType
from hidet.ir.visit import walk
from hidet.loc import Loc

_ALIGN = 16
"""Bytes that arrays in registers are aligned to."""


class FunctionEmitter:
    """The body of one function.

    places: byte offset of each shared array in the kernel's dynamic memory; empty when they are declared one by one.
    values: the emitter of its expressions, which has the lines. locs: by number of a line, its place in a script.
    """

    def __init__(
        self,
        function: Function,
        names: CNames,
        prelude: Prelude,
        functions: dict[str, Function],
        places: dict[e.Var, int],
    ) -> None:
        self.values = ExpressionEmitter(names, prelude, functions, data_variables(function), ACCESSES)
        self.function = function
        self.prelude, self.dialect, self.spelling = prelude, prelude.dialect, prelude.spelling
        self.places = places
        self._declared: set[e.Var] = set()
        self.locs: dict[int, Loc] = {}
        self.values.naturals.update(function.grid_vars)
        self._assigned = {node.var for node in statements(function.body) if isinstance(node, s.Assign)}
        self._index, self._count = self.spelling.types[dtypes.i64], self.spelling.types[dtypes.i32]
        self._largest = max(map(_magnitude, walk(function.body)), default=1)

    def stmt(self, node: s.Stmt) -> None:
        """Append a statement; lines remember its place."""
        case = _CASES.get(type(node)) or self.dialect.statements.get(type(node))
        if case is None:
            raise CodegenError(f"statement {type(node).__name__} has no {self.spelling.name} spelling")
        loc: Loc | None = getattr(node, "loc", None)
        first = len(self.values.lines)
        try:
            case(self, node)
        except CodegenError as error:
            if error.loc is None and loc is not None:
                raise CodegenError(error.message, loc=loc, hint=error.hint) from error
            raise
        if loc is not None:
            for line in range(first, len(self.values.lines)):
                self.locs.setdefault(line, loc)

    def _seq(self, node: s.Seq) -> None:
        for child in node.stmts:
            self.stmt(child)

    def block(self, head: str, body: s.Stmt) -> None:
        """`head {`, the body one step further in; the brace stays open."""
        self.values.line(f"{head} {{")
        self.values.depth += 1
        self.stmt(body)
        self.values.depth -= 1

    def _declare(self, node: s.Declare) -> None:
        var = node.var
        if isinstance(var.type, BufferType):
            self._array(var, var.type)
            return
        if node.init is not None and var not in self._assigned and is_natural(node.init, self.values.naturals):
            self.values.naturals.add(var)
        self.values.begin(node.init)
        init = "" if node.init is None else f" = {self.values.text(node.init)}"
        self.values.line(f"{self.values.type(var.type)} {self.values.names(var, var.name)}{init};")

    def declare_shared(self) -> None:
        """Declare the arrays of the block, where the language has them at the beginning of a kernel alone."""
        if self.dialect.shared.is_of_kernel:
            for var in shared_arrays(self.function.body):
                assert isinstance(var.type, BufferType)
                self._array(var, var.type)
                self._declared.add(var)

    def _array(self, var: e.Var, type_: BufferType) -> None:
        if var in self._declared:
            return
        if type_.space == "shared" and self.dialect.shared.is_of_kernel and self.function.kind != "kernel":
            what = f"{self.function.name} declares an array of the block"
            raise CodegenError(f"{what}, which {self.spelling.name} has in kernels alone", hint="declare it there")
        element = self.values.type(element_type(type_))
        name = self.values.names(var, var.name)
        if var in self.places:
            pointer = self.spelling.pointer(element, "shared")
            self.values.line(f"{pointer} {name} = ({pointer})(shared_memory + {self.places[var]});")
            return
        count = max(element_count(type_), 1)
        shared = self.dialect.shared if type_.space == "shared" else None
        bytes_ = _ALIGN if shared is None else shared.align(array_bytes(type_))
        align = self.dialect.align.format(bytes=bytes_)
        self.values.line(f"{'' if shared is None else shared.qualifier}{align} {element} {name}[{count}];")

    def _assign(self, node: s.Assign) -> None:
        self.values.begin(node.value)
        self.values.line(f"{self.values.names(node.var, node.var.name)} = {self.values.text(node.value)};")

    def _store(self, node: s.Store) -> None:
        self.values.begin(node.buffer, *node.indices, node.value, node.mask)
        type_ = node.value.type
        assert not isinstance(type_, BufferType)
        if node.mask is not None and node.value.lanes > 1:
            self._masked_store(node)
            return
        condition = "" if node.mask is None else f"if ({self.values.text(node.mask)}) "
        value = self.values.text(node.value)
        stored_as = self.dialect.wide_store(self.prelude, node)
        if stored_as is not None:
            base, offset = self.values.value(node.buffer), spell_offset(self.values, node.buffer, node.indices)
            self.values.line(f"{stored_as}({infix(base, '+', offset, SUM).text}, {value});")
            return
        self.values.line(f"{condition}{spell_place(self.values, node.buffer, node.indices, type_).text} = {value};")

    def _masked_store(self, node: s.Store) -> None:
        assert node.mask is not None
        mask, value = self.values.operand(node.mask), self.values.operand(node.value)
        base, offset = self.values.value(node.buffer), spell_offset(self.values, node.buffer, node.indices)
        self.values.line(self.dialect.unroll)
        place = f"{base.inside(15)}[{offset.inside(12)} + i]"
        self.values.line(
            f"for ({self._count} i = 0; i < {node.value.lanes}; ++i) if ({mask('i').text}) {place} = {value('i').text};"
        )

    def _for(self, node: s.For) -> None:
        self.values.begin(node.start, node.extent)
        name = self.values.names(node.var, node.var.name)
        start = self.values.text(node.start)
        end = self.values.text(node.start + node.extent)
        constant = isinstance(node.extent, e.Const) and isinstance(node.start, e.Const)
        if not constant and not end.isidentifier():
            bound = self.values.names.fresh("end")
            self.values.line(f"const {self._index} {bound} = {end};")
            end = bound
        if node.kind == "unroll":
            self.values.line(self.dialect.unroll)
        step = f"++{name}" if node.step == 1 else f"{name} += {node.step}"
        if is_natural(node.start, self.values.naturals):
            self.values.naturals.add(node.var)
        # Constant loops count in 32 bits, where products with two constants fit: their indices become immediates.
        small = isinstance(node.extent, e.Const) and abs(int(node.extent.value)) * self._largest**2 < 1 << 31  # type: ignore[arg-type]
        index = self._count if constant and small and node.kind == "unroll" else self._index
        self.block(f"for ({index} {name} = {start}; {name} < {end}; {step})", node.body)
        self.values.line("}")

    def _while(self, node: s.While) -> None:
        self.values.begin(node.condition)
        mark = len(self.values.lines)
        self.values.depth += 1
        condition = self.values.value(node.condition)
        self.values.depth -= 1
        if len(self.values.lines) == mark:
            self.block(f"while ({condition.text})", node.body)
        else:
            # The condition needs constants of its own, which are made anew in each round.
            needed, self.values.lines[mark:] = self.values.lines[mark:], ["  " * self.values.depth + "while (true) {"]
            self.values.lines += [*needed, "  " * (self.values.depth + 1) + f"if (!{condition.inside(15)}) break;"]
            self.values.depth += 1
            self.stmt(node.body)
            self.values.depth -= 1
        self.values.line("}")

    def _if(self, node: s.If) -> None:
        self.values.begin(node.condition)
        self.block(f"if ({self.values.text(node.condition)})", node.then)
        if node.otherwise is not None:
            self.block("} else", node.otherwise)
        self.values.line("}")

    def _return(self, node: s.Return) -> None:
        self.values.begin(node.value)
        self.values.line("return;" if node.value is None else f"return {self.values.text(node.value)};")

    def _evaluate(self, node: s.Evaluate) -> None:
        self.values.begin(node.expr)
        self.values.line(f"{self.values.text(node.expr)};")

    def _host_only(self, node: s.Stmt) -> None:
        raise CodegenError(f"{type(node).__name__.lower()} stands in a kernel; only host functions launch and invoke")


def _magnitude(node: IRNode) -> int:
    """The absolute value of an i64 constant; 1 for all else."""
    return abs(int(node.value)) if isinstance(node, e.Const) and node.type is dtypes.i64 else 1  # type: ignore[arg-type]


def c_string(text: str) -> str:
    """A C string literal."""
    safe = "".join(
        c if 32 <= ord(c) < 127 and c not in '"\\?' else f"\\{byte:03o}" for c in text for byte in c.encode()
    )
    return f'"{safe}"'


def element_count(type_: BufferType) -> int:
    """Elements of an array of constant shape, up to the last one its strides reach."""
    shape = [_constant(extent) for extent in type_.shape]
    if type_.strides is None:
        return prod(shape)
    strides = [_constant(stride) for stride in type_.strides]
    return 0 if 0 in shape else 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def _constant(node: e.Expr) -> int:
    if not isinstance(node, e.Const) or isinstance(node.value, complex):
        raise CodegenError("an array in a kernel needs a constant shape")
    return int(node.value)


def array_bytes(type_: BufferType) -> int:
    """Bytes of an array of constant shape."""
    return element_count(type_) * type_.lanes * type_.dtype.nbytes


def statements(body: s.Stmt) -> Iterator[s.Stmt]:
    """Every statement of a body, in order."""
    yield body
    for child in body.children():
        if isinstance(child, s.Stmt):
            yield from statements(child)


def shared_arrays(body: s.Stmt) -> list[e.Var]:
    """The arrays in shared memory that a body declares."""
    declared = (node.var for node in statements(body) if isinstance(node, s.Declare))
    return [var for var in declared if isinstance(var.type, BufferType) and var.type.space == "shared"]


def data_variables(function: Function) -> frozenset[e.Var]:
    """Integer locals whose value comes from memory: their arithmetic may overflow."""
    found: set[e.Var] = set()
    writes = [
        (node.var, value)
        for node in statements(function.body)
        if isinstance(node, s.Declare | s.Assign)
        and (value := node.init if isinstance(node, s.Declare) else node.value) is not None
        and isinstance(node.var.type, DType)
        and node.var.type.is_int
    ]
    changed = True
    while changed:
        changed = False
        for var, value in writes:
            if var not in found and _reaches(value, found):
                found.add(var)
                changed = True
    return frozenset(found)


def _reaches(root: IRNode, data: set[e.Var]) -> bool:
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, e.Load) or (isinstance(node, e.Var) and node in data):
            return True
        stack.extend(node.children())
    return False


_CASES: dict[type, Callable[[FunctionEmitter, Any], None]] = {
    s.Seq: FunctionEmitter._seq,
    s.Declare: FunctionEmitter._declare,
    s.Assign: FunctionEmitter._assign,
    s.Store: FunctionEmitter._store,
    s.For: FunctionEmitter._for,
    s.While: FunctionEmitter._while,
    s.If: FunctionEmitter._if,
    s.Break: lambda emitter, node: emitter.values.line("break;"),
    s.Continue: lambda emitter, node: emitter.values.line("continue;"),
    s.Return: FunctionEmitter._return,
    s.Evaluate: FunctionEmitter._evaluate,
    s.Launch: FunctionEmitter._host_only,
    s.Invoke: FunctionEmitter._host_only,
}
