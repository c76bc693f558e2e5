"""What the functions of `hidet.lang` mean in a script: from values to expressions, tensors and statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.errors import DTypeError, ScriptError, ShapeError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Bitcast, Expr, Load, Var
from hidet.ir.print_format import check_format, directives
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.ir.types import BufferType, MemorySpace, PointerType, VectorType, with_lanes
from hidet.lang import operators
from hidet.lang.cpu import VECTOR_OPERATIONS
from hidet.lang.layout import Layout, constant_size, is_row_major, row_major, shown
from hidet.lang.types import POINTER_WORD, TensorKind, value_type
from hidet.lang.values import LatePointer, TensorValue, is_runtime, tensor_of

if TYPE_CHECKING:
    from hidet.lang.translator import Translator

_SPACES: dict[str, MemorySpace] = {
    "register": "register",
    "shared": "shared",
    "local": "local",
    "global": "global",
    "default": "register",
}
MATH = tuple(name for name, row in {**UNARY_OPS, **BINARY_OPS}.items() if row.symbol is None)
"""Scalar operations that scripts call by name, such as `exp` and `truncdiv`."""


def _declare_tensor(
    translator: Translator, scope: object, dtype: object, shape: Sequence[Any] | None, layout: Layout | None
) -> TensorValue:
    """Memory of this function. ScriptError or ShapeError for a space, shape or layout that is none."""
    space = _SPACES.get(str(scope).lower().rpartition(".")[2])
    if space is None or space == "global":
        raise ScriptError(f"a tensor is declared in shared, register or local memory, not in {scope!r}")
    element = value_type(dtype)
    pointee = element if isinstance(element, PointerType) else None
    if isinstance(element, PointerType):
        element = POINTER_WORD
    used, extents = _layout(shape, layout)
    scalar, lanes = (element.dtype, element.lanes) if isinstance(element, VectorType) else (element, 1)
    is_plain = is_row_major(used)
    size = constant_size(used)
    memory = tuple(map(build.index, extents)) if is_plain else (build.index(size),)
    variable = Var(translator.target_name or "tensor", BufferType(scalar, memory, None, space, lanes))
    translator.stmts.append(s.Declare(variable))
    return tensor_of(variable, extents, None if is_plain else used, translator.facts, pointee)


def _layout(shape: Sequence[Any] | None, layout: Layout | None) -> tuple[Layout, tuple[Any, ...]]:
    """The layout of a tensor given its shape, its layout or both."""
    if shape is None and layout is None:
        raise ShapeError("a tensor needs a shape or a layout")
    if layout is not None and not isinstance(layout, Layout):
        raise ShapeError(
            f"{layout!r} is no layout", hint="use row_major, column_major, local_layout or products of them"
        )
    extents = tuple(layout.shape if shape is None else shape if isinstance(shape, tuple | list) else (shape,))  # type: ignore[union-attr]  # one of them is given
    extents = tuple(e if isinstance(e, int) else operators.index(e) for e in extents)
    if layout is None:
        return row_major(extents), extents
    known = [(a, b) for a, b in zip(extents, layout.shape, strict=False) if isinstance(a, int) and isinstance(b, int)]
    if len(extents) != len(layout.shape) or any(a != b for a, b in known):
        raise ShapeError(f"a tensor of shape [{shown(extents)}] cannot have layout {layout}")
    return layout, extents


def _tensor(
    translator: Translator,
    *positional: Any,
    shape: Sequence[Any] | None = None,
    layout: Layout | None = None,
    scope: Any = None,
    dtype: Any = None,
    is_static: bool = False,
) -> TensorValue:
    """`tensor(scope, dtype, shape, layout)`, or with the dtype first and the scope as keyword or last."""
    if is_static:
        raise ScriptError("a tensor of a script lives as long as a call", hint="pass memory that outlives it")
    values = list(positional)
    if values and str(values[0]).lower().rpartition(".")[2] in _SPACES:
        scope = values.pop(0)
    names = ["dtype", "shape", "layout", "scope"]
    given = {"shape": shape, "layout": layout, "scope": scope, "dtype": dtype}
    for name, value in zip(names, values, strict=False):
        if given[name] is not None:
            raise ScriptError(f"tensor got {name} twice")
        given[name] = value
    if given["dtype"] is None:
        raise ScriptError("a tensor needs the type of its elements", hint="tensor(f32, [4, 8])")
    where = "register" if given["scope"] is None else given["scope"]
    return _declare_tensor(translator, where, given["dtype"], given["shape"], given["layout"])


def _in_space(space: str) -> Callable[..., TensorValue]:
    def declare(translator: Translator, dtype: Any, shape: Any = None, layout: Layout | None = None) -> TensorValue:
        return _declare_tensor(translator, space, dtype, shape, layout)

    # Python names a function so where its arguments do not fit.
    declare.__qualname__ = f"{space}_tensor"
    return declare


def _as_tensor_pointer(
    translator: Translator, pointer: Any, dtype: Any = None, shape: Any = None, layout: Layout | None = None
) -> TensorValue:
    """Memory behind a pointer as a tensor; dtype None keeps that of the pointer."""
    base = operators.decayed(pointer)
    if not isinstance(base, Expr) or not isinstance(base.type, PointerType):
        raise DTypeError(f"as_tensor_pointer takes a pointer, got {operators.described(base)}")
    element, pointee = (base.type.dtype, None) if dtype is None else _pointed(dtype)
    base = operators.cast(base, PointerType(element, base.type.space))
    used, extents = _layout(translator.held(shape), layout)
    if not isinstance(base, Var) or translator.may_change(base):
        variable = Var(translator.target_name or "pointer", base.type)
        translator.stmts.append(s.Declare(variable, base))
        base = variable
    return tensor_of(base, extents, used, translator.facts, pointee)


def _pointed(dtype: Any) -> tuple[dtypes.DType, PointerType | None]:
    """What memory holds for elements of a type, and for pointers, their type."""
    element = value_type(dtype)
    if isinstance(element, PointerType):
        return POINTER_WORD, element
    if not isinstance(element, dtypes.DType):
        raise DTypeError(f"a pointer points to scalars, not to {element}")
    return element, None


def _tensor_pointer(
    translator: Translator, dtype: Any, shape: Any = None, layout: Layout | None = None, init: Any = None
) -> TensorValue | LatePointer:
    """As `as_tensor_pointer`; without `init` an assignment says later where it points."""
    if init is not None:
        return _as_tensor_pointer(translator, init, dtype, shape, layout)
    element, pointee = _pointed(dtype)
    used, extents = _layout(translator.held(shape), layout)
    variable = translator.declare_empty(translator.target_name or "pointer", PointerType(element, "generic"))
    return LatePointer(tensor_of(variable, extents, used, translator.facts, pointee))


def _view(translator: Translator, pointer: Any, kind: Any) -> TensorValue:
    if not isinstance(kind, TensorKind):
        raise DTypeError(f"view takes a tensor type such as f32[4, 8], got {kind}")
    dtype = kind.dtype if kind.pointee is None else kind.pointee
    return _as_tensor_pointer(translator, pointer, dtype, kind.shape, kind.layout)


def _memory(value: Any) -> Expr:
    """A pointer or buffer. DTypeError for other values."""
    base = value.start() if isinstance(value, TensorValue) else operators.as_expr(value)
    if not isinstance(base.type, PointerType | BufferType):
        raise DTypeError(f"expected a tensor or pointer, got a value of type {base.type}")
    return base


def _place(memory: Any, indices: Any) -> tuple[Expr, tuple[Expr, ...]]:
    listed = tuple(indices) if isinstance(indices, tuple | list) else (indices,)
    if isinstance(memory, TensorValue):
        return memory.base, memory.place(listed)
    return _memory(memory), tuple(map(operators.index, listed))


def _load(translator: Translator, memory: Any, indices: Any = 0, type: Any = None, mask: Any = None) -> Expr:
    """Several consecutive elements where `type` is a vector; lanes whose `mask` is false are zero."""
    base, place = _place(memory, indices)
    element = base.dtype if not isinstance(memory, TensorValue) else memory.element
    return Load(base, place, element if type is None else value_type(type), mask)


def _store(translator: Translator, memory: Any, indices: Any, value: Any, mask: Any = None) -> None:
    base, place = _place(memory, indices)
    expr = operators.as_expr(value)
    converted = operators.convert(value, with_lanes(base.dtype, expr.lanes), "the value stored")
    translator.stmts.append(s.Store(base, place, converted, mask))


def _address(translator: Translator, memory: Any, *indices: Any) -> Expr:
    if isinstance(memory, TensorValue):
        return memory.address(indices or [0] * len(memory.shape))
    if isinstance(memory, Load) and not indices and not isinstance(memory.type, PointerType):
        return build.address(memory.buffer, *memory.indices)
    return build.address(_memory(memory), *map(operators.index, indices or (0,)))


def _deref(translator: Translator, pointer: Any, index: Any = 0) -> Expr:
    if isinstance(pointer, TensorValue) and len(pointer.shape) == 1:
        return pointer.read([index])
    return build.load(_memory(pointer), operators.index(index))


def _extract(translator: Translator, vector: Any, lane: object) -> Expr:
    expr = operators.as_expr(vector)
    if not isinstance(lane, int) or not 0 <= lane < expr.lanes:
        raise DTypeError(f"a value of type {expr.type} has no lane {lane!r}")
    return build.extract(expr, lane)


def _fma(translator: Translator, a: Any, b: Any, c: Any) -> Expr:
    first, second = operators.unify(a, b)
    first, third = operators.unify(first, c)
    return fma(first, operators.unify(second, third)[0], third)


def _bitcast(translator: Translator, value: Any, type: Any) -> Expr:
    return Bitcast(operators.as_expr(value), value_type(type))


def _printf(translator: Translator, text: Any, *values: Any) -> None:
    """As in C: %s shows a text, which Python knows; what shows unsigned numbers shows the bits of signed ones."""
    if not isinstance(text, str):
        raise ScriptError("printf takes a text first", hint='printf("%d\\n", i)')
    text, given = _with_texts(text, values)
    shown = tuple(map(operators.as_expr, given))
    check_format(text, [value.type for value in shown])
    letters = [part.letter for part in directives(text) if part.letter]
    translator.stmts.append(s.Print(text, tuple(map(_as_shown, letters, shown))))


def _with_texts(text: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
    """The format with texts in the places of their directives, and the other values."""
    rest = list(values)
    parts: list[str] = []
    others: list[Any] = []
    for part in directives(text):
        if part.letter == "s" and rest and isinstance(rest[0], str):
            parts.append((f"%{part.flags}s" % rest.pop(0)).replace("%", "%%"))
            continue
        parts.append(part.text)
        others += [rest.pop(0)] if part.letter and rest else []
    return "".join(parts), [*others, *rest]


def _as_shown(letter: str, value: Expr) -> Expr:
    is_signed = isinstance(value.type, dtypes.DType) and value.type.kind == "int" and value.type.bits <= 32
    return Bitcast(build.cast(value, dtypes.i32), dtypes.u32) if letter in "uoxX" and is_signed else value


def _asm(
    translator: Translator,
    template: Any,
    *,
    outputs: Sequence[Any] = (),
    output_inputs: Sequence[Any] = (),
    inputs: Sequence[Any] = (),
    is_volatile: bool = False,
    memory_fence: bool = False,
) -> None:
    """Assembly of the target: operands %0, … are outputs, output_inputs, which it reads and writes, and inputs."""
    if not isinstance(template, str):
        raise ScriptError("asm takes a text first", hint='asm("mov.u32 %0, %%laneid;", outputs=[lane])')
    places = [_changed(place) for place in (*outputs, *output_inputs)]
    cells = [Var("operand", BufferType(place.dtype, (build.index(1),), None, "register")) for place in places]
    translator.stmts += [s.Declare(cell) for cell in cells]
    updates = cells[len(outputs) :]
    for cell, value in zip(updates, output_inputs, strict=True):
        translator.stmts.append(s.Store(cell, (build.index(0),), value))
    results, arguments = tuple(cells[: len(outputs)]), tuple(map(operators.as_expr, map(operators.decayed, inputs)))
    has_effect = is_volatile or not places
    translator.stmts.append(s.Assembly(template, results, tuple(updates), arguments, has_effect, memory_fence))
    for cell, place in zip(cells, places, strict=True):
        value = build.load(cell, 0)
        if isinstance(place, Load):
            translator.stmts.append(s.Store(place.buffer, place.indices, value))
        else:
            translator.stmts.append(s.Assign(place, value))


def _changed(place: Any) -> Var | Load:
    """What assembly can give a value: an element or a variable. DTypeError for everything else."""
    if not isinstance(place, Var | Load) or not isinstance(place.type, dtypes.DType):
        raise DTypeError(f"asm writes to variables and elements, not to {operators.described(place)}")
    return place


def _assume(translator: Translator, condition: Any) -> None:
    """What holds here is known from here on: a condition, or several joined by `and`, on integers that never change.
    Nothing checks it, and inside of branches and loops nothing is kept. ScriptError for one that never holds."""
    if not is_runtime(condition):
        if not condition:
            raise ScriptError("this never holds")
    elif not translator.names.is_branch_since(0):
        translator.facts.assume(operators.condition(condition), translator.may_change)


def _only_in_loops(translator: Translator, *arguments: Any, **keywords: Any) -> None:
    raise ScriptError("this is what a for loop goes over, not a value")


def _static(translator: Translator, value: Any) -> Any:
    if isinstance(value, Expr):
        raise ScriptError("static takes a value known at build time")
    return value


def _select(translator: Translator, test: Any, a: Any, b: Any) -> Any:
    return operators.select(test, a, b)


def _named(op: str) -> Callable[..., Any]:
    if op in UNARY_OPS:
        return lambda translator, a: operators.unary(op, a)
    return lambda translator, a, b: operators.binary(op, operators.as_expr(a), b)


MEANINGS: dict[str, Callable[..., Any]] = {
    **{name: _named(name) for name in MATH},
    **VECTOR_OPERATIONS,
    "tensor": _tensor,
    "register_tensor": _in_space("register"),
    "shared_tensor": _in_space("shared"),
    "local_tensor": _in_space("local"),
    "as_tensor_pointer": _as_tensor_pointer,
    "tensor_pointer": _tensor_pointer,
    "view": _view,
    "cast": lambda translator, value, type: operators.cast(
        value.start() if isinstance(value, TensorValue) else value, value_type(type)
    ),
    "bitcast": _bitcast,
    "load": _load,
    "store": _store,
    "deref": _deref,
    "bitwise_not": lambda translator, value: operators.unary("not", value),
    "address": _address,
    "broadcast": lambda translator, value, lanes: build.broadcast(operators.as_expr(value), lanes),
    "extract": _extract,
    "fma": _fma,
    "if_then_else": _select,
    "printf": _printf,
    "asm": _asm,
    "static": _static,
    "__builtin_assume": _assume,
    "grid": _only_in_loops,
    "unroll": _only_in_loops,
    "vectorize": _only_in_loops,
}
"""name of a function of hidet.lang -> function of the translator and the arguments."""
