"""Functions and statements of the thread IR in CUDA C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from hidet import dtypes
from hidet.cuda.codegen.memory import MemoryEmitter
from hidet.cuda.codegen.names import CNames
from hidet.cuda.codegen.prelude import Prelude
from hidet.cuda.codegen.signs import is_natural
from hidet.cuda.codegen.spelling import element_type
from hidet.cuda.codegen.text import SUM, infix
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function
from hidet.ir.node import IRNode
from hidet.ir.print_format import c_format, promoted
from hidet.ir.types import BufferType, PointerType, Type, VectorType, element_dtype
from hidet.ir.visit import walk
from hidet.loc import Loc

STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory that a kernel may declare; what goes beyond is asked for when it is launched."""

_ALIGN = 16
# TMA wants 128 bytes, its swizzled patterns repeat every 1024.
_LARGE_ALIGN = ((8192, 1024), (1024, 128))


def _stored_as(node: s.Store) -> str | None:
    """The function that writes 8 or 16 bytes of elements of 2 or 4 bytes; None for other stores."""
    type_, place = node.value.type, node.buffer.type
    assert isinstance(place, BufferType | PointerType)
    if not isinstance(type_, VectorType) or place.space not in ("global", "shared"):
        return None
    nbytes = type_.dtype.nbytes
    fits = nbytes in (2, 4) and nbytes * type_.lanes in (8, 16) and not type_.dtype.is_complex
    return f"store_{place.space}" if fits and type_.dtype == element_type(place) else None


class FunctionEmitter(MemoryEmitter):
    """The body of one function.

    places: byte offset of each shared array in the kernel's dynamic memory; empty when they are declared one by one.
    """

    def __init__(
        self,
        function: Function,
        names: CNames,
        prelude: Prelude,
        functions: dict[str, Function],
        places: dict[e.Var, int],
    ) -> None:
        super().__init__(names, prelude, functions, data_variables(function))
        self.function = function
        self.places = places
        self.locs: dict[int, Loc] = {}
        self.naturals.update(function.grid_vars)
        self._assigned = {node.var for node in statements(function.body) if isinstance(node, s.Assign)}
        self._largest = max(map(_magnitude, walk(function.body)), default=1)

    def stmt(self, node: s.Stmt) -> None:
        """Append a statement; lines remember its place."""
        case = _CASES.get(type(node))
        if case is None:
            raise CodegenError(f"statement {type(node).__name__} has no CUDA spelling")
        loc: Loc | None = getattr(node, "loc", None)
        first = len(self.lines)
        try:
            case(self, node)
        except CodegenError as error:
            if error.loc is None and loc is not None:
                raise CodegenError(error.message, loc=loc, hint=error.hint) from error
            raise
        if loc is not None:
            for line in range(first, len(self.lines)):
                self.locs.setdefault(line, loc)

    def _seq(self, node: s.Seq) -> None:
        for child in node.stmts:
            self.stmt(child)

    def block(self, head: str, body: s.Stmt) -> None:
        """`head {`, the body one step further in; the brace stays open."""
        self.line(f"{head} {{")
        self.depth += 1
        self.stmt(body)
        self.depth -= 1

    def _declare(self, node: s.Declare) -> None:
        var = node.var
        if isinstance(var.type, BufferType):
            self._array(var, var.type)
            return
        if node.init is not None and var not in self._assigned and is_natural(node.init, self.naturals):
            self.naturals.add(var)
        self.begin(node.init)
        init = "" if node.init is None else f" = {self.text(node.init)}"
        self.line(f"{self.type(var.type)} {self.names(var, var.name)}{init};")

    def _array(self, var: e.Var, type_: BufferType) -> None:
        element = self.type(element_type(type_))
        name = self.names(var, var.name)
        if var in self.places:
            self.line(f"{element}* {name} = ({element}*)(shared_memory + {self.places[var]});")
            return
        count = max(element_count(type_), 1)
        shared = "__shared__ " if type_.space == "shared" else ""
        align = array_align(type_) if shared else _ALIGN
        self.line(f"{shared}__align__({align}) {element} {name}[{count}];")

    def _assign(self, node: s.Assign) -> None:
        self.begin(node.value)
        self.line(f"{self.names(node.var, node.var.name)} = {self.text(node.value)};")

    def _store(self, node: s.Store) -> None:
        self.begin(node.buffer, *node.indices, node.value, node.mask)
        type_ = node.value.type
        assert not isinstance(type_, BufferType)
        if node.mask is not None and node.value.lanes > 1:
            self._masked_store(node)
            return
        condition = "" if node.mask is None else f"if ({self.text(node.mask)}) "
        value = self.text(node.value)
        stored_as = _stored_as(node)
        if stored_as is not None:
            self.prelude.use("store_words")
            base, offset = self.value(node.buffer), self.offset(node.buffer, node.indices)
            self.line(f"{stored_as}({infix(base, '+', offset, SUM).text}, {value});")
            return
        self.line(f"{condition}{self.place(node.buffer, node.indices, type_).text} = {value};")

    def _masked_store(self, node: s.Store) -> None:
        assert node.mask is not None
        mask, value = self.operand(node.mask), self.operand(node.value)
        base, offset = self.value(node.buffer), self.offset(node.buffer, node.indices)
        self.line("#pragma unroll")
        place = f"{base.inside(15)}[{offset.inside(12)} + i]"
        self.line(f"for (int i = 0; i < {node.value.lanes}; ++i) if ({mask('i').text}) {place} = {value('i').text};")

    def _for(self, node: s.For) -> None:
        self.begin(node.start, node.extent)
        name = self.names(node.var, node.var.name)
        start = self.text(node.start)
        end = self.text(node.start + node.extent)
        constant = isinstance(node.extent, e.Const) and isinstance(node.start, e.Const)
        if not constant and not end.isidentifier():
            bound = self.names.fresh("end")
            self.line(f"const long long {bound} = {end};")
            end = bound
        if node.kind == "unroll":
            self.line("#pragma unroll")
        step = f"++{name}" if node.step == 1 else f"{name} += {node.step}"
        if is_natural(node.start, self.naturals):
            self.naturals.add(node.var)
        # Constant loops count in 32 bits, where products with two constants fit: their indices become immediates.
        small = isinstance(node.extent, e.Const) and abs(int(node.extent.value)) * self._largest**2 < 1 << 31  # type: ignore[arg-type]
        index = "int" if constant and small and node.kind == "unroll" else "long long"
        self.block(f"for ({index} {name} = {start}; {name} < {end}; {step})", node.body)
        self.line("}")

    def _while(self, node: s.While) -> None:
        self.begin(node.condition)
        mark = len(self.lines)
        self.depth += 1
        condition = self.value(node.condition)
        self.depth -= 1
        if len(self.lines) == mark:
            self.block(f"while ({condition.text})", node.body)
        else:
            # The condition needs constants of its own, which are made anew in each round.
            needed, self.lines[mark:] = self.lines[mark:], ["  " * self.depth + "while (true) {"]
            self.lines += [*needed, "  " * (self.depth + 1) + f"if (!{condition.inside(15)}) break;"]
            self.depth += 1
            self.stmt(node.body)
            self.depth -= 1
        self.line("}")

    def _if(self, node: s.If) -> None:
        self.begin(node.condition)
        self.block(f"if ({self.text(node.condition)})", node.then)
        if node.otherwise is not None:
            self.block("} else", node.otherwise)
        self.line("}")

    def _return(self, node: s.Return) -> None:
        self.begin(node.value)
        self.line("return;" if node.value is None else f"return {self.text(node.value)};")

    def _evaluate(self, node: s.Evaluate) -> None:
        self.begin(node.expr)
        self.line(f"{self.text(node.expr)};")

    def _assert(self, node: s.Assert) -> None:
        if node.values:
            raise CodegenError("an assertion on a GPU tells no values: what CUDA prints is a constant", loc=node.loc)
        # NVRTC declares what CUDA's assert calls.
        self.begin(node.condition)
        place, row = ("", 0) if node.loc is None else (node.loc.file or "", node.loc.line or 0)
        condition = self.value(node.condition)
        arguments = f"{c_string(node.message)}, {c_string(place)}, {row}, {c_string(self.function.name)}, 1"
        self.line(f"if (!{condition.inside(15)}) __assertfail({arguments});")

    def _print(self, node: s.Print) -> None:
        # CUDA's printf takes what C's takes (CUDA C++ Programming Guide, Formatted Output).
        values = [v if isinstance(v.type, PointerType) else build.cast(v, promoted(v.dtype)) for v in node.values]
        self.begin(*values)
        self.line(f"printf({', '.join([c_string(c_format(node.text)), *map(self.text, values)])});")

    def _assembly(self, node: s.Assembly) -> None:
        # PTX in CUDA C++, "Inline PTX Assembly": a letter an operand says which register it is.
        self.begin(*node.arguments)
        written = [f'"={_register(var.type)}"({self.names(var, var.name)}[0])' for var in node.results]
        written += [f'"+{_register(var.type)}"({self.names(var, var.name)}[0])' for var in node.updates]
        read = [f'"{_register(value.type)}"({self.text(value)})' for value in node.arguments]
        clobbers = ' : "memory"' if node.touches_memory else ""
        volatile = " volatile" if node.has_effect else ""
        self.line(f"asm{volatile}({c_string(node.text)} : {', '.join(written)} : {', '.join(read)}{clobbers});")

    def _host_only(self, node: s.Stmt) -> None:
        raise CodegenError(f"{type(node).__name__.lower()} stands in a kernel; only host functions launch and invoke")


_REGISTERS = {
    **dict.fromkeys((dtypes.i16, dtypes.u16), "h"),
    **dict.fromkeys((dtypes.i32, dtypes.u32), "r"),
    **dict.fromkeys((dtypes.i64, dtypes.u64), "l"),
    dtypes.f32: "f",
    dtypes.f64: "d",
}


def _magnitude(node: IRNode) -> int:
    """The absolute value of an i64 constant; 1 for all else."""
    return abs(int(node.value)) if isinstance(node, e.Const) and node.type is dtypes.i64 else 1  # type: ignore[arg-type]


def _register(type_: Type) -> str:
    """The letter of the register that holds an operand of assembly."""
    if isinstance(type_, PointerType):
        return "l"
    letter = _REGISTERS.get(element_dtype(type_))
    if letter is None:
        raise CodegenError(f"assembly has no registers of {element_dtype(type_)}", hint="bitcast it to an integer")
    return letter


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


def array_align(type_: BufferType) -> int:
    """Bytes that the address of a shared array is a multiple of."""
    nbytes = array_bytes(type_)
    return next((align for least, align in _LARGE_ALIGN if nbytes >= least), _ALIGN)


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
    s.Break: lambda emitter, node: emitter.line("break;"),
    s.Continue: lambda emitter, node: emitter.line("continue;"),
    s.Return: FunctionEmitter._return,
    s.Evaluate: FunctionEmitter._evaluate,
    s.Assert: FunctionEmitter._assert,
    s.Print: FunctionEmitter._print,
    s.Assembly: FunctionEmitter._assembly,
    s.Launch: FunctionEmitter._host_only,
    s.Invoke: FunctionEmitter._host_only,
}
