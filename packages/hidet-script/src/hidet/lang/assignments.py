"""Assignments of scripts: which names are variables of the program, and which stand for what Python knows."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hidet.errors import DTypeError, ScriptError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.types import BufferType, PointerType, Type, element_dtype, lanes_of
from hidet.lang import operators
from hidet.lang.attributes import AttributePath, AttributeValues, attribute_name
from hidet.lang.environment import Environment
from hidet.lang.expressions import OPERATORS, ExpressionTranslator
from hidet.lang.primitives import MEANINGS
from hidet.lang.source import FunctionSource
from hidet.lang.types import TensorKind, value_type
from hidet.lang.values import Cell, LatePointer, Primitive, TensorValue, is_runtime

_CHANGED = (Var, Cell, LatePointer)
"""What names can stand for that an assignment gives another value, instead of binding the name anew."""


class AssignmentTranslator(ExpressionTranslator):
    """Expressions and assignments of one script. `attributes` is what it sets."""

    def __init__(self, source: FunctionSource, names: Environment) -> None:
        super().__init__(source, names)
        self.attributes = AttributeValues()
        self._addressed = _addressed_names(source.tree)

    def is_assigned(self, name: str) -> bool:
        """Whether an assignment somewhere in the function gives the name a value."""
        return self._bindings[name] > 0

    def is_rebound(self, name: str) -> bool:
        """Whether an assignment or a loop somewhere in the function gives the name a value, or its address is taken."""
        return self._bindings[name] > 0 or name in self._loop_targets or name in self._addressed

    def is_variable(self, value: Any) -> bool:
        """Whether a value is a variable that assignments may change."""
        return isinstance(value, Cell) or (isinstance(value, Var) and value in self._assignable)

    def declare_named(self, name: str, value: Expr, node: ast.AST | None = None) -> Var | Cell:
        """What a name of the script stands for that gets a value: a variable, in memory where its address is taken."""
        if name not in self._addressed:
            return self.declare(name, value, node)
        cell = self._cell(name, value.type)
        self.stmts.append(cell.write(value, None if node is None else self.place(node)))
        return cell

    def _cell(self, name: str, type_: Type) -> Cell:
        """A variable in memory, without a value."""
        if isinstance(type_, PointerType | BufferType):
            raise ScriptError(f"the address of {name} is taken, which holds a pointer", hint="use a register_tensor")
        memory = Var(name, BufferType(element_dtype(type_), (build.index(1),), None, "register", lanes_of(type_)))
        self.stmts.append(s.Declare(memory))
        return Cell(memory)

    # --- assignments -------------------------------------------------------------------------------------------------

    def assign(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            self._assign_all(node)
            return
        (target,) = node.targets
        if isinstance(target, ast.Tuple | ast.List):
            self._assign_parts(target, node)
            return
        self.target_name = target.id if isinstance(target, ast.Name) else None
        is_static = self._is_static(node.value)
        count = len(self.stmts)
        value = self.value(node.value)
        self.locate(count, node)
        self.target_name = None
        self._assign_to(target, value, node, is_static)

    def _assign_all(self, node: ast.Assign) -> None:
        """`a = b = x`: the value is computed once."""
        value = self.value(node.value)
        value = self._snapshot(value, node)
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List):
                self.fail(target, "an assignment to several targets has no tuples among them", "write two assignments")
            self._assign_to(target, value, node, is_static=False)

    def _is_static(self, node: ast.expr) -> bool:
        function = self.value(node.func) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        return isinstance(function, Primitive) and function.name == "static"

    def _assign_parts(self, target: ast.Tuple | ast.List, node: ast.Assign) -> None:
        values = list(self.known_sequence(node.value))
        if len(values) != len(target.elts):
            self.fail(target, f"{len(target.elts)} targets for {len(values)} values")
        changes = any(not isinstance(e, ast.Name) or isinstance(self.known_as(e.id), _CHANGED) for e in target.elts)
        # All values are read before the first target changes.
        held = [self._snapshot(value, node) for value in values] if changes else values
        for element, value in zip(target.elts, held, strict=True):
            self._assign_to(element, value, node, is_static=False)

    def known_as(self, name: str) -> Any:
        """What a name means that an assignment here changes; None for one that it gives its first value."""
        found = self.names.own(name, to_assign=True)
        return None if found is None else found[0].names[name]

    def _snapshot(self, value: Any, node: ast.AST) -> Any:
        """A value for several uses: computed once, now."""
        is_computed = isinstance(value, Expr) and not isinstance(value, Const | Var)
        return self.declare("value", value, node) if is_computed else self.held(value, node)

    def _assign_to(self, target: ast.expr, value: Any, node: ast.stmt, is_static: bool) -> None:
        if isinstance(target, ast.Name):
            self._assign_name(target.id, value, node, is_static)
        elif isinstance(target, ast.Subscript):
            self._store(target, value, node)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if not isinstance(owner, AttributePath):
                self.fail(
                    target, f"{ast.unparse(target)} cannot be assigned to: a script changes tensors and variables"
                )
            path = getattr(owner, target.attr).path
            if self.names.is_branch_since(0):
                what = f"attribute {attribute_name(path)} is set where the program branches"
                self.fail(target, what, "set it before the loop or branch")
            self.attributes.set(path, value, self.place(node))
        else:
            self.fail(target, f"{ast.unparse(target)} cannot be assigned to")

    def _assign_name(self, name: str, value: Any, node: ast.stmt, is_static: bool) -> None:
        found = self.names.own(name, to_assign=True)
        known = None if found is None else found[0].names[name]
        if isinstance(known, Cell):
            self.stmts.append(known.write(value, self.place(node)))
            return
        if isinstance(known, LatePointer):
            self.stmts.append(known.point_to(value, self.place(node)))
            return
        if isinstance(known, Var) and known in self._assignable and not isinstance(value, TensorValue):
            self.change(known, value, node)
            return
        if found is not None and found[1]:
            self.fail(
                node,
                f"{name} stands for something known at build time, and cannot change where the program branches",
                f"declare it as a variable of the program: {name}: i64 = ...",
            )
        value = operators.plain_number(value)
        is_number = isinstance(value, bool | int | float)
        is_rebound = self._bindings[name] > 1 or name in self._loop_targets or name in self._addressed
        if is_number and is_rebound and not is_static and (known is None or is_runtime(known)):
            value = operators.as_expr(value)
        if isinstance(value, Expr) and not isinstance(value.type, BufferType):
            value = self.declare_named(name, value, node)
        else:
            value = self.held(value, node)
        (self.names.bind if found is None else found[0].names.__setitem__)(name, value)

    def change(self, variable: Var, value: Any, node: ast.stmt) -> None:
        """Give a variable of the program another value, converted to its type."""
        type_ = variable.type
        assert not isinstance(type_, BufferType)
        try:
            converted = operators.convert(value, type_, f"the value of {variable.name}")
        except DTypeError as error:
            hint = f"{error.hint}; or declare the variable by its type: {variable.name}: f32 = ..."
            raise ScriptError(error.message, loc=self.place(node), hint=hint) from error
        self.stmts.append(s.Assign(variable, converted, self.place(node)))

    def _store(self, target: ast.Subscript, value: Any, node: ast.stmt) -> None:
        value, owner, keys = self.in_order(lambda: value, *self._place_of(target))
        self.stmts.append(self._store_stmt(target, owner, keys, value, node))

    def _place_of(self, target: ast.Subscript) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """What computes the tensor or pointer that a target is an element of, and what computes its indices."""
        return partial(self.value, target.value), partial(self.keys, target)

    def _store_stmt(
        self, target: ast.Subscript, owner: Any, keys: Sequence[Any], value: Any, node: ast.stmt
    ) -> s.Store:
        loc = self.place(node)
        if isinstance(owner, TensorValue):
            store = owner.write(keys, value)
            return s.Store(store.buffer, store.indices, store.value, None, loc)
        if not isinstance(owner, Expr) or not isinstance(owner.type, PointerType):
            self.fail(target, f"{ast.unparse(target.value)} is no tensor or pointer: its elements cannot be assigned")
        if len(keys) != 1:
            self.fail(target, f"a {owner.type} takes one index")
        return s.Store(
            owner, (operators.index(keys[0]),), operators.convert(value, owner.dtype, "the value"), None, loc
        )

    def augmented(self, node: ast.AugAssign) -> None:
        op, target = OPERATORS[type(node.op)], node.target
        if isinstance(target, ast.Subscript):
            owner, keys = self.in_order(*self._place_of(target))
            # The place is mentioned twice: what it takes to find it must happen once.
            keys = [self.declare("index", key, node) if self.effects(key) - {"pure"} else key for key in keys]
            old = owner.read(keys) if isinstance(owner, TensorValue) else build.load(owner, *map(operators.index, keys))
            values = (lambda: owner, lambda: keys, lambda: old, partial(self.value, node.value))
            owner, keys, old, added = self.in_order(*values)
            self.stmts.append(self._store_stmt(target, owner, keys, self.combine(op, old, added), node))
            return
        if not isinstance(target, ast.Name):
            self.fail(target, f"{ast.unparse(target)} cannot be assigned to")
        named = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        value = self.combine(op, *self.elements((named, node.value)))
        self._assign_name(target.id, value, node, is_static=False)

    def annotated(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            self.fail(node.target, "only names are declared with a type")
        name = node.target.id
        kind = self.value(node.annotation)
        if isinstance(kind, TensorKind):
            if node.value is not None:
                self.fail(node, "a tensor is declared without a value", "fill it in a loop")
            self.target_name = name
            tensor = MEANINGS["register_tensor"](self, kind.element, kind.shape)
            self.target_name = None
            self.names.bind(name, tensor)
            return
        type_ = value_type(kind)
        if node.value is None and name in self._addressed:
            cell = self._cell(name, type_)
            self.names.bind(name, cell)
            return
        if node.value is None:
            self.names.bind(name, self.declare_empty(name, type_, node))
            return
        value = operators.convert(self.value(node.value), type_, f"the value of {name}")
        self.names.bind(name, self.declare_named(name, value, node))


def _addressed_names(tree: ast.FunctionDef) -> set[str]:
    """Names of which the script takes the address: `~x` or `address(x)`."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            found.append(node.operand)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "address":
            found += node.args[:1]
    return {node.id for node in found if isinstance(node, ast.Name)}
