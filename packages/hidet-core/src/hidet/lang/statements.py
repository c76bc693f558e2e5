"""Translating the statements of a script."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from hidet.errors import DTypeError, ScriptError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Const, Expr, Var
from hidet.ir.intrinsics import INTRINSICS
from hidet.ir.types import BufferType, PointerType, ValueType
from hidet.ir.visit import walk
from hidet.lang import operators
from hidet.lang.attributes import AttributePath, AttributeValues
from hidet.lang.environment import Environment
from hidet.lang.expressions import OPERATORS, ExpressionTranslator
from hidet.lang.loops import translate_for
from hidet.lang.primitives import MEANINGS
from hidet.lang.source import FunctionSource
from hidet.lang.types import TensorKind, value_type
from hidet.lang.values import Primitive, TensorValue, is_runtime

LoopContext = Literal["none", "runtime", "now"]


class FunctionTranslator(ExpressionTranslator):
    """The body of one script. `attributes` is what it sets, `callees` the scripts it calls."""

    def __init__(self, source: FunctionSource, names: Environment, result: ValueType | None) -> None:
        super().__init__(source, names)
        self.result = result
        self.attributes = AttributeValues()
        self.callees: list[Any] = []
        self.parallel_loops: list[s.For] = []
        self._bindings = _count_bindings(source.tree)
        loops = (node.target for node in ast.walk(source.tree) if isinstance(node, ast.For))
        self._loop_targets = {part.id for target in loops for part in ast.walk(target) if isinstance(part, ast.Name)}
        self._assignable: set[Var] = set()
        self._loop: LoopContext = "none"

    def is_assigned(self, name: str) -> bool:
        """Whether an assignment somewhere in the function gives the name a value."""
        return self._bindings[name] > 0

    def is_rebound(self, name: str) -> bool:
        """Whether an assignment or a loop somewhere in the function gives the name a value."""
        return self._bindings[name] > 0 or name in self._loop_targets

    def is_variable(self, value: Any) -> bool:
        """Whether a value is a variable that assignments may change."""
        return isinstance(value, Var) and value in self._assignable

    def may_change(self, variable: Var) -> bool:
        """Whether assignments can give the variable another value."""
        is_target = variable.name in self._loop_targets
        return variable in self._assignable and (is_target or self._bindings[variable.name] > 1)

    def statements(self, nodes: Sequence[ast.stmt], loop: LoopContext | None = None) -> None:
        """Translate statements into the current block; `loop`: what kind of loop they are the body of, None for the
        same as around them."""
        before = self._loop
        self._loop = before if loop is None else loop
        for node in nodes:
            case = _CASES.get(type(node))
            if case is None:
                self.fail(node, f"{_kind(node)} has no meaning in a script", _HINTS.get(type(node)))
            with self.at(node):
                case(self, node)
        self._loop = before

    @contextmanager
    def collecting(self) -> Iterator[list[s.Stmt]]:
        """Statements added inside go to the list given, not to the current block."""
        outer, self.stmts = self.stmts, []
        try:
            yield self.stmts
        finally:
            self.stmts = outer

    def body(self, nodes: Sequence[ast.stmt], loop: LoopContext | None = None) -> s.Stmt:
        """Statements of a block that runs zero or several times."""
        with self.collecting() as stmts, self.block(is_branch=True):
            self.statements(nodes, loop)
        return build.seq(stmts)

    def declare(self, name: str, value: Expr, node: ast.AST | None = None) -> Var:
        """A new variable of the program with a value."""
        variable = Var(name, value.type)
        self.stmts.append(s.Declare(variable, value, None if node is None else self.place(node)))
        self._assignable.add(variable)
        return variable

    # --- assignments -------------------------------------------------------------------------------------------------

    def assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.fail(node, "a script assigns to one target at a time", "write two assignments")
        (target,) = node.targets
        if isinstance(target, ast.Tuple | ast.List):
            self._assign_parts(target, node)
            return
        self.target_name = target.id if isinstance(target, ast.Name) else None
        is_static = self._is_static(node.value)
        value = self.value(node.value)
        self.target_name = None
        self._assign_to(target, value, node, is_static)

    def _is_static(self, node: ast.expr) -> bool:
        function = self.value(node.func) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        return isinstance(function, Primitive) and function.name == "static"

    def _assign_parts(self, target: ast.Tuple | ast.List, node: ast.Assign) -> None:
        values = list(self.known_sequence(node.value))
        if len(values) != len(target.elts):
            self.fail(target, f"{len(target.elts)} targets for {len(values)} values")
        changes = any(not isinstance(e, ast.Name) or isinstance(self.known_as(e.id), Var) for e in target.elts)
        # All values are read before the first target changes.
        held = [self._snapshot(value, node) for value in values] if changes else values
        for element, value in zip(target.elts, held, strict=True):
            self._assign_to(element, value, node, is_static=False)

    def known_as(self, name: str) -> Any:
        """What a name of this script means now; None for one that has no value yet."""
        found = self.names.own(name)
        return None if found is None else found[0].names[name]

    def _snapshot(self, value: Any, node: ast.AST) -> Any:
        is_fixed = not isinstance(value, Expr) or isinstance(value, Const)
        if is_fixed or (isinstance(value, Var) and value not in self._assignable):
            return value
        return self.declare("value", value, node)

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
            self.attributes.set(getattr(owner, target.attr).path, value)
        else:
            self.fail(target, f"{ast.unparse(target)} cannot be assigned to")

    def _assign_name(self, name: str, value: Any, node: ast.stmt, is_static: bool) -> None:
        if isinstance(value, Call) and value.type is None:
            self.fail(node, f"{value.callee} gives no value")
        found, known = self.names.own(name), self.known_as(name)
        if isinstance(known, Var) and known in self._assignable and not isinstance(value, TensorValue):
            self.change(known, value, node)
            return
        if found is not None and found[1]:
            self.fail(
                node,
                f"{name} stands for something known at build time, and cannot change where the program branches",
                f"declare it as a variable of the program: {name}: i64 = ...",
            )
        is_number = isinstance(value, bool | int | float)
        is_rebound = self._bindings[name] > 1 or name in self._loop_targets
        if is_number and is_rebound and not is_static and (known is None or is_runtime(known)):
            value = operators.as_expr(value)
        if isinstance(value, Expr) and not isinstance(value.type, BufferType):
            value = self.declare(name, value, node)
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
        owner, keys = self.value(target.value), self.keys(target)
        self.stmts.append(self._store_stmt(target, owner, keys, value, node))

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
            owner, keys = self.value(target.value), self.keys(target)
            # The place is mentioned twice: what it takes to find it must happen once.
            keys = [self.declare("index", key, node) if _has_effect(key) else key for key in keys]
            old = owner.read(keys) if isinstance(owner, TensorValue) else build.load(owner, *map(operators.index, keys))
            value = self.combine(op, old, self.value(node.value))
            self.stmts.append(self._store_stmt(target, owner, keys, value, node))
            return
        if not isinstance(target, ast.Name):
            self.fail(target, f"{ast.unparse(target)} cannot be assigned to")
        value = self.combine(
            op, self.value(ast.copy_location(ast.Name(target.id, ast.Load()), target)), self.value(node.value)
        )
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
        if node.value is None:
            variable = Var(name, type_)
            self.stmts.append(s.Declare(variable, None, self.place(node)))
            self._assignable.add(variable)
        else:
            variable = self.declare(
                name, operators.convert(self.value(node.value), type_, f"the value of {name}"), node
            )
        self.names.bind(name, variable)

    # --- control flow ------------------------------------------------------------------------------------------------

    def branch(self, node: ast.If) -> None:
        test = self.value(node.test)
        if isinstance(test, Const):
            test = test.value
        if not is_runtime(test):
            self.statements(node.body if test else node.orelse)
            return
        condition = operators.condition(test)
        then = self.body(node.body)
        otherwise = self.body(node.orelse) if node.orelse else None
        self.stmts.append(s.If(condition, then, otherwise, self.place(node)))

    def repeat(self, node: ast.While) -> None:
        if node.orelse:
            self.fail(node.orelse[0], "a loop of a script has no else")
        condition = operators.condition(self.value(node.test))
        self.stmts.append(s.While(condition, self.body(node.body, loop="runtime"), self.place(node)))

    def leave(self, node: ast.Break | ast.Continue) -> None:
        what = type(node).__name__.lower()
        if self._loop == "none":
            self.fail(node, f"{what} stands outside of a loop")
        if self._loop == "now":
            self.fail(node, f"{what} stands in a loop that is unrolled at build time", "loop over range(...) instead")
        self.stmts.append(s.Break() if isinstance(node, ast.Break) else s.Continue())

    def leave_function(self, node: ast.Return) -> None:
        value = None if node.value is None else self.value(node.value)
        if value is None:
            if self.result is not None:
                self.fail(node, f"returns nothing, expected a {self.result}")
            self.stmts.append(s.Return(None, self.place(node)))
            return
        if self.result is None:
            self.fail(
                node, "returns a value, but no type is declared for it", "write -> f32, or another type, after ()"
            )
        converted = operators.convert(value, self.result, "the value returned")
        self.stmts.append(s.Return(converted, self.place(node)))

    def check(self, node: ast.Assert) -> None:
        test = self.value(node.test)
        message = ast.unparse(node.test) if node.msg is None else str(self.known(node.msg, "the message"))
        if not is_runtime(test):
            if not test:
                self.fail(node, f"assertion failed: {message}")
            return
        self.stmts.append(s.Assert(operators.condition(test), message, self.place(node)))

    def expression(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        count = len(self.stmts)
        value = self.value(node.value)
        if isinstance(value, Call):
            self.stmts.append(s.Evaluate(value, self.place(node)))
        elif isinstance(value, Expr):
            self.fail(node, f"the value of {ast.unparse(node.value)} is not used")
        self.locate(count, node)

    def locate(self, since: int, node: ast.AST) -> None:
        """Give the statements of the current block from number `since` on the place of `node`, if they have none."""
        loc = self.place(node)
        for number in range(since, len(self.stmts)):
            self.stmts[number] = _located(self.stmts[number], loc)


def _located(stmt: s.Stmt, loc: Any) -> s.Stmt:
    if getattr(stmt, "loc", loc) is not None:
        return stmt
    fields = {name: getattr(stmt, name) for name in (*stmt.child_fields, *stmt.attribute_fields)}
    made: s.Stmt = type(stmt)(**{**fields, "loc": loc})
    return made


def _count_bindings(tree: ast.FunctionDef) -> Counter[str]:
    """How often each name is assigned a value; what `+=` changes counts twice, so that it becomes a variable."""
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                counts.update(name.id for name in ast.walk(target) if _is_stored(name))  # type: ignore[attr-defined]  # names
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and isinstance(node.target, ast.Name):
            counts[node.target.id] += 2
    return counts


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _has_effect(value: Any) -> bool:
    """Whether evaluating a value twice is not the same as once."""
    calls = [node for node in walk(value) if isinstance(node, Call)] if isinstance(value, Expr) else []
    return any(call.callee not in INTRINSICS or INTRINSICS[call.callee].effect != "pure" for call in calls)


def _kind(node: ast.stmt) -> str:
    words = {ast.FunctionDef: "a function inside of a script", ast.With: "with", ast.Try: "try"}
    return words.get(type(node), ast.unparse(node).splitlines()[0])


_HINTS: dict[type[ast.AST], str] = {
    ast.FunctionDef: "define it before, under its own @hidet.script; a lambda may stand here",
    ast.ImportFrom: "import before the function",
    ast.Import: "import before the function",
}

_CASES: dict[type[ast.AST], Callable[[FunctionTranslator, Any], None]] = {
    ast.Assign: FunctionTranslator.assign,
    ast.AugAssign: FunctionTranslator.augmented,
    ast.AnnAssign: FunctionTranslator.annotated,
    ast.If: FunctionTranslator.branch,
    ast.For: translate_for,
    ast.While: FunctionTranslator.repeat,
    ast.Break: FunctionTranslator.leave,
    ast.Continue: FunctionTranslator.leave,
    ast.Return: FunctionTranslator.leave_function,
    ast.Assert: FunctionTranslator.check,
    ast.Expr: FunctionTranslator.expression,
    ast.Pass: lambda translator, node: None,
}
