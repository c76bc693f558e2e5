"""Checks that programs obey the rules of the thread IR: scopes, types, and calls between functions.

    variables   declared before use in an enclosing block, once; only declared locals are assigned
    types       as the table in `verify_expr` derives them; conditions are bool, indices i64
    loops       of positive step; break and continue stand in a loop that is not unrolled
    functions   kernels return nothing and are launched by host functions with fitting arguments

A `Size`, `Access` or `Reduce` left over from a compute definition is an error here: schedules replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hidet import dtypes
from hidet.errors import VerifyError
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Const, Expr, Var
from hidet.ir.func import EXPORTED, Function, Module
from hidet.ir.print_format import check_format
from hidet.ir.printer import print_stmt
from hidet.ir.types import BufferType, PointerType, Type, VectorType
from hidet.ir.verify_expr import check_arguments, check_condition, check_element, check_expr, check_indices
from hidet.ir.visit import walk


def verify_module(module: Module) -> None:
    """Raise VerifyError, naming function and statement, for the first rule that `module` breaks."""
    functions: dict[str, Function] = {}
    for function in module.functions:
        if function.name in functions:
            raise VerifyError(f"the module has two functions called {function.name}")
        functions[function.name] = function
    entry = functions.get(module.entry)
    if entry is None or not (entry.kind == "host" or EXPORTED in entry.attributes):
        raise VerifyError(f"entry {module.entry!r} is no host function of the module; it has {', '.join(functions)}")
    for function in module.functions:
        _Checker(function, functions, module.externals).run()


class _Checker:
    """One function. externals: what may be linked from other modules."""

    def __init__(self, function: Function, functions: Mapping[str, Function], externals: Iterable[str]) -> None:
        self.function = function
        self.functions = functions
        self.externals = set(externals)
        self.visible: set[Var] = set()
        self.assignable: set[Var] = set()
        self.loops: list[s.For | s.While] = []
        self._checked: set[int] = set()
        self._current: s.Stmt | None = None

    def run(self) -> None:
        function = self.function
        try:
            self._signature()
            self.stmt(function.body)
        except VerifyError as error:
            where = "" if self._current is None else f", in {_first_line(self._current)}"
            raise VerifyError(
                f"{function.kind} function {function.name}{where}: {error.message}", loc=error.loc, hint=error.hint
            ) from error

    def _signature(self) -> None:
        function = self.function
        for var in (*function.params, *function.grid_vars):
            if var in self.visible:
                raise VerifyError(f"parameter {var.name} is listed twice")
            self.visible.add(var)
        for var in function.params:
            self._type(var.type)
        if function.grid_vars and function.kind != "kernel":
            raise VerifyError("only kernels have grid indices")
        for var in function.grid_vars:
            if var.type is not dtypes.i64:
                raise VerifyError(f"grid index {var.name} has type {var.type}, expected i64")
        if function.result is not None and function.kind != "device":
            raise VerifyError(f"returns {function.result}; only device functions return values")

    def _type(self, type_: Type) -> None:
        """The extents and strides of a buffer type are i64 expressions in scope."""
        if isinstance(type_, BufferType):
            for extent in (*type_.shape, *(type_.strides or ())):
                self.expr(extent)
                if extent.type is not dtypes.i64:
                    raise VerifyError(f"an extent or stride has type {extent.type}, expected i64")
            if type_.strides is not None and len(type_.strides) != len(type_.shape):
                raise VerifyError(f"{len(type_.strides)} strides for {len(type_.shape)} axes")

    def expr(self, root: Expr) -> None:
        """Check an expression: its variables here, its types once."""
        nodes = [node for node in walk(root) if isinstance(node, Expr)]
        for node in reversed(nodes):
            if isinstance(node, Var) and node not in self.visible:
                raise VerifyError(f"variable {node.name} is not declared here")
            if id(node) not in self._checked:
                check_expr(node, self.functions)
        self._checked.update(map(id, nodes))

    def condition(self, root: Expr, what: str) -> None:
        self.expr(root)
        check_condition(root, what)

    def index(self, root: Expr, what: str) -> None:
        self.expr(root)
        if root.type is not dtypes.i64:
            raise VerifyError(f"{what} has type {root.type}, expected i64")

    def stmt(self, node: s.Stmt) -> None:
        case = _CASES.get(type(node))
        if case is None:
            raise VerifyError(f"statement {type(node).__name__} is unknown")
        if not isinstance(node, s.Seq):
            self._current = node
        case(self, node)

    @contextmanager
    def block(self) -> Iterator[None]:
        """What is declared inside is not visible after."""
        visible, assignable = set(self.visible), set(self.assignable)
        yield
        self.visible, self.assignable = visible, assignable

    def introduce(self, var: Var) -> None:
        if var in self.visible:
            raise VerifyError(f"variable {var.name} is declared twice")
        self.visible.add(var)

    def seq(self, node: s.Seq) -> None:
        with self.block():
            for child in node.stmts:
                self.stmt(child)

    def declare(self, node: s.Declare) -> None:
        type_ = node.var.type
        self._type(type_)
        if node.init is not None:
            self.expr(node.init)
            if isinstance(type_, BufferType):
                raise VerifyError(f"buffer {node.var.name} cannot have an initial value")
            self._check_value(node.init, type_, f"the initial value of {node.var.name}")
        if isinstance(type_, BufferType) and not all(isinstance(extent, Const) for extent in type_.shape):
            raise VerifyError(f"buffer {node.var.name} needs a constant shape")
        self.introduce(node.var)
        if not isinstance(type_, BufferType):
            self.assignable.add(node.var)

    def assign(self, node: s.Assign) -> None:
        self.expr(node.var)
        self.expr(node.value)
        if node.var not in self.assignable:
            raise VerifyError(
                f"{node.var.name} cannot be assigned: it is a parameter, an index or a buffer",
                hint="declare a local with its value and assign that",
            )
        self._check_value(node.value, node.var.type, f"the value of {node.var.name}")

    def _check_value(self, value: Expr, expected: Type, what: str) -> None:
        if value.type != expected:
            raise VerifyError(f"{what} has type {value.type}, expected {expected}")

    def store(self, node: s.Store) -> None:
        for child in node.children():
            if isinstance(child, Expr):
                self.expr(child)
        check_indices(node.buffer, node.indices)
        check_element(node.buffer, node.value.type, node.mask)
        type_ = node.buffer.type
        if isinstance(type_, PointerType | BufferType) and type_.space == "constant":
            raise VerifyError("constant memory is never written")

    def loop(self, node: s.For) -> None:
        self.index(node.start, "the start of the loop")
        self.index(node.extent, "the extent of the loop")
        if node.var.type is not dtypes.i64:
            raise VerifyError(f"loop index {node.var.name} has type {node.var.type}, expected i64")
        if node.step < 1:
            raise VerifyError(f"the step of the loop is {node.step}, expected at least 1")
        if node.kind == "unroll" and not (isinstance(node.extent, Const) and isinstance(node.start, Const)):
            raise VerifyError("an unrolled loop needs a constant start and extent")
        with self.block():
            self.introduce(node.var)
            self._inside(node, node.body)

    def repeat(self, node: s.While) -> None:
        self.condition(node.condition, "the condition of the loop")
        with self.block():
            self._inside(node, node.body)

    def _inside(self, loop: s.For | s.While, body: s.Stmt) -> None:
        self.loops.append(loop)
        self.stmt(body)
        self.loops.pop()

    def branch(self, node: s.If) -> None:
        self.condition(node.condition, "the condition")
        for side in (node.then, node.otherwise):
            if side is not None:
                with self.block():
                    self.stmt(side)

    def check(self, node: s.Assert) -> None:
        self.condition(node.condition, "the assertion")
        if len(node.values) > s.ASSERTED_VALUES:
            raise VerifyError(f"an assertion tells at most {s.ASSERTED_VALUES} values, got {len(node.values)}")
        for value in node.values:
            self.index(value, "a value that an assertion tells")

    def leave(self, node: s.Break | s.Continue) -> None:
        what = type(node).__name__.lower()
        if not self.loops:
            raise VerifyError(f"{what} stands outside a loop")
        loop = self.loops[-1]
        if isinstance(loop, s.For) and loop.kind == "unroll":
            raise VerifyError(f"{what} stands in an unrolled loop, which has no end to jump to")

    def leave_function(self, node: s.Return) -> None:
        result = self.function.result
        if node.value is None:
            if result is not None:
                raise VerifyError(f"returns nothing, expected {result}")
            return
        self.expr(node.value)
        if result is None or node.value.type != result:
            raise VerifyError(f"returns {node.value.type}, expected {result or 'nothing'}")

    def evaluate(self, node: s.Evaluate) -> None:
        if not isinstance(node.expr, Call):
            raise VerifyError("only calls are evaluated for their effect")
        self.expr(node.expr)

    def show(self, node: s.Print) -> None:
        for value in node.values:
            self.expr(value)
        check_format(node.text, [value.type for value in node.values])

    def assembly(self, node: s.Assembly) -> None:
        for var in (*node.results, *node.updates):
            self.expr(var)
            type_ = var.type
            if not isinstance(type_, BufferType) or type_.space != "register" or type_.lanes != 1:
                raise VerifyError(f"{var.name} is no array in registers, which assembly writes to")
        for argument in node.arguments:
            self.expr(argument)
            if isinstance(argument.type, BufferType | VectorType):
                raise VerifyError(f"assembly takes numbers and pointers, got a value of type {argument.type}")

    def launch(self, node: s.Launch) -> None:
        self._host_only("launched")
        for role, extents in (("grid", node.grid), ("block", node.block), ("cluster", node.cluster)):
            for extent in extents:
                self.index(extent, f"a {role} extent")
        for role, value in (("the cost", node.cost), ("the number of shared bytes", node.shared_bytes)):
            if value is not None:
                self.index(value, role)
        if len(node.block) > 3 or (node.block and len(node.grid) > 3) or len(node.cluster) > len(node.grid):
            raise VerifyError(
                f"{node.kernel} is launched with {len(node.grid)} grid, {len(node.block)} block and "
                f"{len(node.cluster)} cluster extents; a GPU has at most three of each, and clusters of grid indices"
            )
        if not node.block and (node.cluster or node.shared_bytes is not None or node.is_cooperative):
            raise VerifyError(
                f"{node.kernel} is launched with a cluster, shared memory or blocks that wait for each other, but no "
                "block of threads"
            )
        function = self._linked(node.kernel, "kernel", node.arguments)
        if function is not None and len(node.grid) != len(function.grid_vars) and function.grid_vars:
            raise VerifyError(
                f"{node.kernel} has {len(function.grid_vars)} grid indices, launched with {len(node.grid)}"
            )

    def invoke(self, node: s.Invoke) -> None:
        self._host_only("invoked")
        self._linked(node.function, "host", node.arguments)

    def _host_only(self, verb: str) -> None:
        if self.function.kind != "host":
            raise VerifyError(f"functions are {verb} by host functions only")

    def _linked(self, name: str, kind: str, arguments: tuple[Expr, ...]) -> Function | None:
        """The function of the module that is called; None if it is linked from another module."""
        for argument in arguments:
            self.expr(argument)
        function = self.functions.get(name)
        if function is None:
            if name not in self.externals:
                raise VerifyError(f"{name} is neither a function of the module nor among its externals")
            return None
        if function.kind != kind:
            raise VerifyError(f"{name} is a {function.kind} function, expected a {kind} function")
        check_arguments(function, arguments)
        return function


def _first_line(stmt: s.Stmt) -> str:
    line, _, rest = print_stmt(stmt).partition("\n")
    return f"`{line}{' ...' if rest else ''}`"


_CASES: dict[type, Callable[[_Checker, Any], None]] = {
    s.Seq: _Checker.seq,
    s.Declare: _Checker.declare,
    s.Assign: _Checker.assign,
    s.Store: _Checker.store,
    s.For: _Checker.loop,
    s.While: _Checker.repeat,
    s.If: _Checker.branch,
    s.Break: _Checker.leave,
    s.Continue: _Checker.leave,
    s.Return: _Checker.leave_function,
    s.Evaluate: _Checker.evaluate,
    s.Assert: _Checker.check,
    s.Print: _Checker.show,
    s.Assembly: _Checker.assembly,
    s.Launch: _Checker.launch,
    s.Invoke: _Checker.invoke,
}
