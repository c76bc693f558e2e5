"""Assignments of scripts: which names are variables of the program, and which stand for what Python knows."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hidet.errors import DTypeError, ScriptError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.types import BufferType, PointerType, Type, element_dtype, lanes_of
from hidet.lang import operators
from hidet.lang.attributes import AttributePath, attribute_name
from hidet.lang.expressions import OPERATORS, combine, flat_keys
from hidet.lang.primitives import MEANINGS
from hidet.lang.types import TensorKind, value_type
from hidet.lang.values import Cell, LatePointer, Primitive, TensorValue, is_runtime

if TYPE_CHECKING:
    from hidet.lang.translator import Translator

_CHANGED = (Var, Cell, LatePointer)
"""What names can stand for that an assignment gives another value, instead of binding the name anew."""


def declare_named(translator: Translator, name: str, value: Expr, node: ast.AST | None = None) -> Var | Cell:
    """What a name of the script stands for that gets a value: a variable, in memory where its address is taken."""
    if name not in translator.bindings.addressed:
        return translator.declare(name, value, node)
    cell = _cell(translator, name, value.type)
    translator.stmts.append(cell.write(value, None if node is None else translator.place(node)))
    return cell


def _cell(translator: Translator, name: str, type_: Type) -> Cell:
    """A variable in memory, without a value."""
    if isinstance(type_, PointerType | BufferType):
        raise ScriptError(f"the address of {name} is taken, which holds a pointer", hint="use a register_tensor")
    memory = Var(name, BufferType(element_dtype(type_), (build.index(1),), None, "register", lanes_of(type_)))
    translator.stmts.append(s.Declare(memory))
    return Cell(memory)


def _assign(translator: Translator, node: ast.Assign) -> None:
    if len(node.targets) > 1:
        _assign_all(translator, node)
        return
    (target,) = node.targets
    if isinstance(target, ast.Tuple | ast.List):
        _assign_parts(translator, target, node)
        return
    translator.target_name = target.id if isinstance(target, ast.Name) else None
    is_static = _is_static(translator, node.value)
    count = len(translator.stmts)
    value = translator.value(node.value)
    translator.locate(count, node)
    translator.target_name = None
    _assign_to(translator, target, value, node, is_static)


def _assign_all(translator: Translator, node: ast.Assign) -> None:
    """`a = b = x`: the value is computed once."""
    value = translator.value(node.value)
    value = _snapshot(translator, value, node)
    for target in node.targets:
        if isinstance(target, ast.Tuple | ast.List):
            translator.fail(
                target, "an assignment to several targets has no tuples among them", "write two assignments"
            )
        _assign_to(translator, target, value, node, is_static=False)


def _is_static(translator: Translator, node: ast.expr) -> bool:
    function = translator.value(node.func) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
    return isinstance(function, Primitive) and function.name == "static"


def _assign_parts(translator: Translator, target: ast.Tuple | ast.List, node: ast.Assign) -> None:
    values = list(translator.known_sequence(node.value))
    if len(values) != len(target.elts):
        translator.fail(target, f"{len(target.elts)} targets for {len(values)} values")
    changes = any(not isinstance(e, ast.Name) or isinstance(known_as(translator, e.id), _CHANGED) for e in target.elts)
    # All values are read before the first target changes.
    held = [_snapshot(translator, value, node) for value in values] if changes else values
    for element, value in zip(target.elts, held, strict=True):
        _assign_to(translator, element, value, node, is_static=False)


def known_as(translator: Translator, name: str) -> Any:
    """What a name means that an assignment here changes; None for one that it gives its first value."""
    found = translator.names.own(name, to_assign=True)
    return None if found is None else found[0].names[name]


def _snapshot(translator: Translator, value: Any, node: ast.AST) -> Any:
    """A value for several uses: computed once, now."""
    is_computed = isinstance(value, Expr) and not isinstance(value, Const | Var)
    return translator.declare("value", value, node) if is_computed else translator.held(value, node)


def _assign_to(translator: Translator, target: ast.expr, value: Any, node: ast.stmt, is_static: bool) -> None:
    if isinstance(target, ast.Name):
        _assign_name(translator, target.id, value, node, is_static)
    elif isinstance(target, ast.Subscript):
        _store(translator, target, value, node)
    elif isinstance(target, ast.Attribute):
        owner = translator.value(target.value)
        if not isinstance(owner, AttributePath):
            translator.fail(
                target, f"{ast.unparse(target)} cannot be assigned to: a script changes tensors and variables"
            )
        path = getattr(owner, target.attr).path
        if translator.names.is_branch_since(0):
            what = f"attribute {attribute_name(path)} is set where the program branches"
            translator.fail(target, what, "set it before the loop or branch")
        translator.attributes.set(path, value, translator.place(node))
    else:
        translator.fail(target, f"{ast.unparse(target)} cannot be assigned to")


def _assign_name(translator: Translator, name: str, value: Any, node: ast.stmt, is_static: bool) -> None:
    found = translator.names.own(name, to_assign=True)
    known = None if found is None else found[0].names[name]
    if isinstance(known, Cell):
        translator.stmts.append(known.write(value, translator.place(node)))
        return
    if isinstance(known, LatePointer):
        translator.stmts.append(known.point_to(value, translator.place(node)))
        return
    if isinstance(known, Var) and translator.is_variable(known) and not isinstance(value, TensorValue):
        change(translator, known, value, node)
        return
    if found is not None and found[1]:
        translator.fail(
            node,
            f"{name} stands for something known at build time, and cannot change where the program branches",
            f"declare it as a variable of the program: {name}: i64 = ...",
        )
    value = operators.plain_number(value)
    is_number = isinstance(value, bool | int | float)
    is_rebound = translator.bindings.is_rebound(name, besides=1)
    if is_number and is_rebound and not is_static and (known is None or is_runtime(known)):
        value = operators.as_expr(value)
    if isinstance(value, Expr) and not isinstance(value.type, BufferType):
        value = declare_named(translator, name, value, node)
    else:
        value = translator.held(value, node)
    (translator.names.bind if found is None else found[0].names.__setitem__)(name, value)


def change(translator: Translator, variable: Var, value: Any, node: ast.stmt) -> None:
    """Give a variable of the program another value, converted to its type."""
    type_ = variable.type
    assert not isinstance(type_, BufferType)
    try:
        converted = operators.convert(value, type_, f"the value of {variable.name}")
    except DTypeError as error:
        hint = f"{error.hint}; or declare the variable by its type: {variable.name}: f32 = ..."
        raise ScriptError(error.message, loc=translator.place(node), hint=hint) from error
    translator.stmts.append(s.Assign(variable, converted, translator.place(node)))


def _store(translator: Translator, target: ast.Subscript, value: Any, node: ast.stmt) -> None:
    value, owner, keys = translator.in_order(lambda: value, *_place_of(translator, target))
    translator.stmts.append(_store_stmt(translator, target, owner, keys, value, node))


def _place_of(translator: Translator, target: ast.Subscript) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What computes the tensor or pointer that a target is an element of, and what computes its indices."""
    return partial(translator.value, target.value), partial(flat_keys, translator, target)


def _store_stmt(
    translator: Translator, target: ast.Subscript, owner: Any, keys: Sequence[Any], value: Any, node: ast.stmt
) -> s.Store:
    loc = translator.place(node)
    if isinstance(owner, TensorValue):
        store = owner.write(keys, value)
        return s.Store(store.buffer, store.indices, store.value, None, loc)
    if not isinstance(owner, Expr) or not isinstance(owner.type, PointerType):
        translator.fail(target, f"{ast.unparse(target.value)} is no tensor or pointer: its elements cannot be assigned")
    if len(keys) != 1:
        translator.fail(target, f"a {owner.type} takes one index")
    return s.Store(owner, (operators.index(keys[0]),), operators.convert(value, owner.dtype, "the value"), None, loc)


def _assign_augmented(translator: Translator, node: ast.AugAssign) -> None:
    op, target = OPERATORS[type(node.op)], node.target
    if isinstance(target, ast.Subscript):
        owner, keys = translator.in_order(*_place_of(translator, target))
        # The place is mentioned twice: what it takes to find it must happen once.
        keys = [translator.declare("index", key, node) if translator.effects(key) - {"pure"} else key for key in keys]
        old = owner.read(keys) if isinstance(owner, TensorValue) else build.load(owner, *map(operators.index, keys))
        values = (lambda: owner, lambda: keys, lambda: old, partial(translator.value, node.value))
        owner, keys, old, added = translator.in_order(*values)
        translator.stmts.append(_store_stmt(translator, target, owner, keys, combine(translator, op, old, added), node))
        return
    if not isinstance(target, ast.Name):
        translator.fail(target, f"{ast.unparse(target)} cannot be assigned to")
    named = ast.copy_location(ast.Name(target.id, ast.Load()), target)
    value = combine(translator, op, *translator.elements((named, node.value)))
    _assign_name(translator, target.id, value, node, is_static=False)


def _assign_annotated(translator: Translator, node: ast.AnnAssign) -> None:
    if not isinstance(node.target, ast.Name):
        translator.fail(node.target, "only names are declared with a type")
    name = node.target.id
    kind = translator.value(node.annotation)
    if isinstance(kind, TensorKind):
        if node.value is not None:
            translator.fail(node, "a tensor is declared without a value", "fill it in a loop")
        translator.target_name = name
        tensor = MEANINGS["register_tensor"](translator, kind.element, kind.shape)
        translator.target_name = None
        translator.names.bind(name, tensor)
        return
    type_ = value_type(kind)
    if node.value is None and name in translator.bindings.addressed:
        cell = _cell(translator, name, type_)
        translator.names.bind(name, cell)
        return
    if node.value is None:
        translator.names.bind(name, translator.declare_empty(name, type_, node))
        return
    value = operators.convert(translator.value(node.value), type_, f"the value of {name}")
    translator.names.bind(name, declare_named(translator, name, value, node))


CASES: dict[type[ast.AST], Callable[[Translator, Any], None]] = {
    ast.Assign: _assign,
    ast.AugAssign: _assign_augmented,
    ast.AnnAssign: _assign_annotated,
}
"""class of an assignment -> what translates it"""
