"""Runs programs slowly with numpy: what compiled code is compared with.

Scalars are numpy arrays of rank 0, vectors of rank 1. A launch runs its kernel for one grid index after the other; one
with blocks of threads is run by the simulator that the family of an intrinsic in the kernel names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np

from hidet.errors import LaunchError, UnsupportedOp, suggestion
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.interpret_expr import ExprInterpreter, bind, undefined
from hidet.ir.memory import AddressSpace, Buffer, Pointer, block_of, dense_strides, fresh_block
from hidet.ir.print_format import python_format
from hidet.ir.printer import print_stmt
from hidet.ir.types import BufferType, PointerType, element_dtype
from hidet.ir.visit import walk


class Simulator(Protocol):
    """Runs launches with blocks of threads."""

    def __call__(
        self,
        functions: Mapping[str, Function],
        kernel: Function,
        arguments: Sequence[Any],
        launch: LaunchExtents,
        space: AddressSpace,
        traffic: Any,
    ) -> None:
        """Run `kernel` for every thread.

        arguments: as host functions have them: numbers, vectors, `Pointer`, `Buffer`. space: where addresses in tables
        lead. traffic: as of `run_module`.
        """


@dataclass(frozen=True, slots=True)
class LaunchExtents:
    """Blocks of a grid, threads of a block and blocks of a cluster along x, y and z, and bytes of shared memory beyond
    what the kernel declares."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int


def run_module(
    module: Module,
    arguments: Sequence[Any],
    *,
    entry: str | None = None,
    linked: Sequence[Module] = (),
    reachable: Sequence[np.ndarray[Any, Any]] = (),
    traffic: object | None = None,
) -> Any:
    """Run the entry function, or the one called `entry`, and return what it returns (None for nothing).

    arguments: one a parameter: contiguous arrays, which are read and written in place, for pointers and buffers (None
        for a null pointer), numbers for scalars, arrays of rank 1 for vectors.
    linked: modules whose functions may be launched, invoked and called as well.
    reachable: further arrays whose addresses (`array.ctypes.data`) the program may find in tables.
    traffic: what the simulator counts uses of shared and global memory in (`hidet.gpu.simulator.traffic.Traffic`); None
        counts nothing.
    Raises LaunchError naming function and statement for reads and writes outside memory, failed assertions and
    arguments that do not fit.
    """
    functions = {function.name: function for part in (*linked, module) for function in part.functions}
    machine = _Machine(functions, traffic)
    for number, array in enumerate(reachable):
        machine.space.add(block_of(f"reachable {number}", array))
    name = module.entry if entry is None else entry
    if name not in functions:
        raise LaunchError(f"the module has no function {name!r}", hint=suggestion(name, functions))
    with np.errstate(all="ignore"):
        return machine.start(functions[name], arguments)


class _Leave(Exception):
    """Control leaves a loop or a function; never seen outside this file."""


class _BreakLoop(_Leave):
    pass


class _ContinueLoop(_Leave):
    pass


class _ReturnValue(_Leave):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Machine:
    """The functions of a program and its memory."""

    def __init__(self, functions: dict[str, Function], traffic: object | None) -> None:
        self.functions = functions
        self.traffic = traffic
        self.space = AddressSpace()

    def start(self, function: Function, arguments: Sequence[Any]) -> Any:
        """Run a function on arguments from outside."""
        if len(arguments) != len(function.params):
            names = ", ".join(var.name for var in function.params)
            count = len(function.params)
            raise LaunchError(f"{function.name} takes {count} arguments ({names}), got {len(arguments)}")
        values = [self._argument(var, value) for var, value in zip(function.params, arguments, strict=True)]
        return self.run(function, values, ())

    def _argument(self, var: Var, value: Any) -> Any:
        dtype = element_dtype(var.type)
        if isinstance(var.type, PointerType | BufferType):
            if value is None:
                return Pointer(None, 0, dtype)
            return Pointer(self.space.add(block_of(var.name, value)), 0, dtype)
        return np.asarray(value).astype(dtype.numpy())

    def run(self, function: Function, arguments: Sequence[Any], grid: Sequence[int]) -> Any:
        """Run a function on values of its parameters, kernels for one index of the grid."""
        return _Frame(self, function).run(arguments, grid)

    def call(self, node: Call, arguments: Sequence[Any]) -> Any:
        """The result of a function or intrinsic."""
        row, name = node.intrinsic, node.callee
        if row is not None:
            meaning = row.family.meaning(name)
            if not callable(meaning):
                raise UnsupportedOp(f"{name} has no meaning outside of launches with blocks of threads")
            return meaning(*arguments)
        if name not in self.functions:
            raise UnsupportedOp(
                f"{name!r} is neither a function nor an intrinsic", hint=suggestion(name, self.functions)
            )
        return self.run(self.functions[name], arguments, ())

    def function(self, name: str) -> Function:
        """A function to launch or invoke."""
        if name not in self.functions:
            raise LaunchError(f"{name!r} is not linked", hint=suggestion(name, self.functions))
        return self.functions[name]


class _Frame:
    """One activation of a function."""

    def __init__(self, machine: _Machine, function: Function) -> None:
        self.machine = machine
        self.function = function
        self.values: dict[Var, Any] = {}
        self.expr = ExprInterpreter(self.values, machine.space, machine)
        self._current: s.Stmt | None = None

    def run(self, arguments: Sequence[Any], grid: Sequence[int]) -> Any:
        function = self.function
        self.values.update(zip(function.params, arguments, strict=True))
        for var in function.params:
            self.values[var] = bind(var.type, self.values[var], self.expr.index)
        for var, index in zip(function.grid_vars, grid, strict=True):
            self.values[var] = np.asarray(index, np.int64)
        try:
            self.stmt(function.body)
        except _ReturnValue as result:
            return result.value
        except LaunchError as error:
            if self._current is not None and not error.message.startswith("in "):
                error.message = f"in {function.name}{list(grid) or ''}, {_first_line(self._current)}: {error.message}"
            raise
        return None

    def stmt(self, node: s.Stmt) -> None:
        case = _CASES.get(type(node))
        if case is None:
            raise UnsupportedOp(f"the interpreter does not know statement {type(node).__name__}")
        if not isinstance(node, s.Seq):
            self._current = node
        case(self, node)

    def seq(self, node: s.Seq) -> None:
        for child in node.stmts:
            self.stmt(child)

    def declare(self, node: s.Declare) -> None:
        type_ = node.var.type
        if node.init is not None:
            self.values[node.var] = self.expr(node.init)
        elif isinstance(type_, BufferType):
            self.values[node.var] = self._local(node.var, type_)
        else:
            self.values[node.var] = undefined(type_)

    def _local(self, var: Var, type_: BufferType) -> Buffer:
        shape = tuple(self.expr.index(extent) for extent in type_.shape)
        strides = dense_strides(shape) if type_.strides is None else tuple(map(self.expr.index, type_.strides))
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        count = 0 if 0 in shape else last + 1
        block = fresh_block(var.name, count * type_.lanes * type_.dtype.nbytes)
        return Buffer(Pointer(block, 0, type_.dtype), shape, strides, type_.lanes)

    def assign(self, node: s.Assign) -> None:
        self.values[node.var] = self.expr(node.value)

    def store(self, node: s.Store) -> None:
        value = np.atleast_1d(self.expr(node.value))
        start = self.expr.pointer(node.buffer, node.indices)
        if node.mask is None:
            start.cells(len(value))[:] = value
            return
        for lane in np.flatnonzero(self.expr(node.mask)):
            start.moved(int(lane)).cells(1)[0] = value[lane]

    def loop(self, node: s.For) -> None:
        start = self.expr.index(node.start)
        for index in range(start, start + self.expr.index(node.extent), node.step):
            self.values[node.var] = np.asarray(index, np.int64)
            if not self._once(node.body):
                return

    def repeat(self, node: s.While) -> None:
        while self.expr(node.condition):
            if not self._once(node.body):
                return

    def _once(self, body: s.Stmt) -> bool:
        """Run a loop's body; False when it breaks out."""
        try:
            self.stmt(body)
        except _ContinueLoop:
            pass
        except _BreakLoop:
            return False
        return True

    def branch(self, node: s.If) -> None:
        side = node.then if self.expr(node.condition) else node.otherwise
        if side is not None:
            self.stmt(side)

    def leave_loop(self, node: s.Break | s.Continue) -> None:
        raise _BreakLoop if isinstance(node, s.Break) else _ContinueLoop

    def leave_function(self, node: s.Return) -> None:
        raise _ReturnValue(None if node.value is None else self.expr(node.value))

    def check(self, node: s.Assert) -> None:
        if not self.expr(node.condition):
            raise LaunchError(node.fill_message(self.expr(value).item() for value in node.values))

    def show(self, node: s.Print) -> None:
        values = [self.expr(value) for value in node.values]
        numbers = [value.address if isinstance(value, Pointer) else value.item() for value in values]
        sys.stdout.write(python_format(node.text, numbers))

    def assembly(self, node: s.Assembly) -> None:
        raise UnsupportedOp("what assembly does is known to its target alone", hint="compile the module for it")

    def launch(self, node: s.Launch) -> None:
        kernel = self.machine.function(node.kernel)
        arguments = [self.expr(argument) for argument in node.arguments]
        if node.block:
            grid, block, cluster = (self._extents(part) for part in (node.grid, node.block, node.cluster))
            shared_bytes = 0 if node.shared_bytes is None else self.expr.index(node.shared_bytes)
            machine, extents = self.machine, LaunchExtents(grid, block, cluster, shared_bytes)
            simulate = _simulator_of(machine.functions, kernel)
            simulate(machine.functions, kernel, arguments, extents, machine.space, machine.traffic)
            return
        ranges = [range(self.expr.index(extent)) for extent in node.grid]
        for index in product(*ranges):
            self.machine.run(kernel, arguments, index[: len(kernel.grid_vars)])

    def _extents(self, extents: Sequence[Expr]) -> tuple[int, int, int]:
        """Extents along x, y and z, those not given being 1."""
        x, y, z = (*map(self.expr.index, extents), 1, 1, 1)[:3]
        return x, y, z

    def invoke(self, node: s.Invoke) -> None:
        arguments = [self.expr(argument) for argument in node.arguments]
        self.machine.run(self.machine.function(node.function), arguments, ())


def _simulator_of(functions: Mapping[str, Function], kernel: Function) -> Simulator:
    """What runs launches of a kernel with blocks of threads, by the intrinsics that it calls."""
    names, pending = {kernel.name}, [kernel]
    while pending:
        for node in walk(pending.pop().body):
            if not isinstance(node, Call):
                continue
            found = None if node.intrinsic is None else node.intrinsic.family.load_simulator()
            if found is not None:
                simulate: Simulator = found
                return simulate
            if node.callee in functions and node.callee not in names:
                names.add(node.callee)
                pending.append(functions[node.callee])
    raise UnsupportedOp(
        f"kernel {kernel.name} is launched with blocks of threads, and calls nothing of a GPU",
        hint="launch it over a grid alone",
    )


def _first_line(stmt: s.Stmt) -> str:
    return f"`{print_stmt(stmt).splitlines()[0]}`"


_CASES: dict[type, Callable[[_Frame, Any], None]] = {
    s.Seq: _Frame.seq,
    s.Declare: _Frame.declare,
    s.Assign: _Frame.assign,
    s.Store: _Frame.store,
    s.For: _Frame.loop,
    s.While: _Frame.repeat,
    s.If: _Frame.branch,
    s.Break: _Frame.leave_loop,
    s.Continue: _Frame.leave_loop,
    s.Return: _Frame.leave_function,
    s.Evaluate: lambda frame, node: frame.expr(node.expr),
    s.Assert: _Frame.check,
    s.Print: _Frame.show,
    s.Assembly: _Frame.assembly,
    s.Launch: _Frame.launch,
    s.Invoke: _Frame.invoke,
}
