"""Statements, run by the threads of a team: one activation of a function.

Threads that take different branches run one after the other and meet again behind, unless a branch may wait for other
threads: then each side becomes a strand of its own. Statements that may wait are generators of waits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet.errors import LaunchError, UnsupportedOp
from hidet.gpu.simulator.evaluate import Evaluation, undefined
from hidet.gpu.simulator.fork import Exits, run_sides
from hidet.gpu.simulator.lanes import NOBODY, Lanes, everyone, merge, spread
from hidet.gpu.simulator.meaning import Site
from hidet.gpu.simulator.memory import Memory, Pointers, RowError, View, pick_value, put_value
from hidet.gpu.simulator.report import statement_text
from hidet.gpu.simulator.strand import POLL, Steps
from hidet.gpu.simulator.wave import ZERO
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.print_format import python_format
from hidet.ir.types import BufferType, element_dtype

if TYPE_CHECKING:
    from hidet.gpu.simulator.team import Team
    from hidet.gpu.simulator.wave import Wave
    from hidet.ir.func import Function

Array = np.ndarray[Any, Any]


class Activation:
    """A function that threads of a team are in. `values`: of its variables. `unset`: which threads have not assigned
    to a variable that was declared without a value. `returned`: threads that left it, with their results."""

    def __init__(self, launch: Wave, team: Team, function: Function) -> None:
        self.launch = launch
        self.team = team
        self.function = function
        self.values: dict[e.Var, Any] = {}
        self.unset: dict[e.Var, Array] = {}
        self.returned: list[tuple[Lanes, Any]] = []

    @property
    def stmt(self) -> s.Stmt | None:
        """The statement that is run now."""
        strand = self.launch.scheduler.current
        return None if strand is None else strand.stmt

    def blocks(self, lanes: Lanes) -> Array:
        """The slots of the blocks that threads belong to."""
        return self.team.slot[lanes.index]

    # --- functions ---------------------------------------------------------------------------------------------------

    def run(self, arguments: list[Any], lanes: Lanes) -> Steps:
        """Run the function for `lanes` on values of its parameters, one row a thread or one; gives its result."""
        for var, value in zip(self.function.params, arguments, strict=True):
            self.values[var] = put_value(None, value, lanes, self.team.size)
        evaluation = Evaluation(self)
        for var in self.function.params:
            if isinstance(var.type, BufferType) and isinstance(self.values[var], Pointers):
                view = self._view(self.values[var], var.type, evaluation, lanes)
                self.values[var] = put_value(None, view, lanes, self.team.size) if not lanes.whole else view
        yield from self.stmts(self.function.body, lanes, None)
        return self._result(lanes)

    def _view(self, pointers: Pointers, type_: BufferType, evaluation: Evaluation, lanes: Lanes) -> View:
        shape = tuple(np.asarray(evaluation.value(extent, lanes), np.int64) for extent in type_.shape)
        if type_.strides is not None:
            strides = tuple(np.asarray(evaluation.value(stride, lanes), np.int64) for stride in type_.strides)
        else:
            strides = tuple(_product(shape[axis + 1 :]) for axis in range(len(shape)))
        return View(pointers, shape, strides, type_.lanes)

    def _result(self, lanes: Lanes) -> Any:
        if not self.returned or self.function.result is None:
            return None
        if len(self.returned) == 1 and self.returned[0][0].count == lanes.count:
            return self.returned[0][1]
        held: Any = undefined(self.function.result)
        for part, value in self.returned:
            held = put_value(held, value, part, self.team.size)
        return pick_value(held, np.isin(np.arange(self.team.size), lanes.index))

    def call(self, evaluation: Evaluation, node: e.Call, lanes: Lanes) -> Steps:
        """Run a function or intrinsic that may wait; gives its value."""
        arguments = self._arguments(evaluation, node, lanes)
        function = self.launch.program.functions.get(node.callee)
        if function is not None:
            return (yield from Activation(self.launch, self.team, function).run(arguments, lanes))
        if node.intrinsic is None:
            raise UnsupportedOp(f"{node.callee!r} is neither a function nor an intrinsic")
        meaning = self.launch.program.meaning(node.intrinsic)
        site = Site(self, lanes, node)
        if not meaning.waits:
            return meaning.function(site, *arguments)
        return (yield from meaning.function(site, *arguments))

    def call_now(self, evaluation: Evaluation, node: e.Call, lanes: Lanes) -> Any:
        """The value of a call that does not wait."""
        if self.launch.program.waits(node):
            raise UnsupportedOp(
                f"{node.callee} waits for other threads where only some of them evaluate it",
                hint="call it in a statement of its own",
            )
        steps = self.call(evaluation, node, lanes)
        try:
            next(steps)
        except StopIteration as end:
            value = end.value
            return value.astype(node.dtype.numpy(), copy=False) if isinstance(value, np.ndarray) else value
        raise UnsupportedOp(f"{node.callee} waits inside an expression")

    def _arguments(self, evaluation: Evaluation, node: e.Call, lanes: Lanes) -> list[Any]:
        values = [evaluation.value(argument, lanes) for argument in node.arguments]
        return [value.pointers if isinstance(value, View) else value for value in values]

    def fault(self, lanes: Lanes, error: RowError) -> LaunchError:
        """The error of the thread that something is wrong for."""
        index = lanes.index[min(error.row, lanes.count - 1)]
        who = self.launch.geometry.describe(int(self.team.agent[index]))
        stmt = self.stmt
        return error.kind(
            f"in {self.function.name}, {who}, {statement_text(stmt)}: {error.message}",
            loc=getattr(stmt, "loc", None),
            hint=error.hint,
        )

    # --- statements --------------------------------------------------------------------------------------------------

    def stmts(self, node: s.Stmt, lanes: Lanes, exits: Exits | None) -> Steps:
        """Run a statement; gives the threads that go on behind it."""
        control = _CONTROL.get(type(node))
        if control is not None:
            return (yield from control(self, node, lanes, exits))
        leaf = _LEAVES.get(type(node))
        if leaf is None:
            raise UnsupportedOp(f"statement {type(node).__name__} has no meaning in a kernel")
        self._at(node, lanes)
        evaluation = Evaluation(self)
        if self.launch.program.waits(node):
            yield from self._wait_for_calls(node, lanes, evaluation)
        self._leaf(leaf, node, lanes, evaluation)
        return lanes

    def _at(self, node: s.Stmt, lanes: Lanes) -> None:
        strand = self.launch.scheduler.current
        assert strand is not None
        strand.stmt, strand.lanes, strand.function, strand.team = node, lanes, self.function.name, self.team

    def _leaf(self, leaf: Any, node: s.Stmt, lanes: Lanes, evaluation: Evaluation) -> None:
        try:
            leaf(self, node, lanes, evaluation)
        except RowError as error:
            raise self.fault(lanes, error) from None

    def _wait_for_calls(self, node: s.Stmt | e.Expr, lanes: Lanes, evaluation: Evaluation) -> Steps:
        """Run the calls of a statement's expressions that may wait, innermost first, and note their values."""
        roots = [node] if isinstance(node, e.Expr) else [c for c in node.children() if isinstance(c, e.Expr)]
        for call in self.launch.program.waiting_calls(roots):
            try:
                value = yield from self.call(evaluation, call, lanes)
            except RowError as error:
                raise self.fault(lanes, error) from None
            evaluation.set(call, lanes, value)
            if not isinstance(node, e.Expr):
                self._at(node, lanes)

    def _condition(self, node: Any, lanes: Lanes) -> Steps:
        """The truth values of the condition of a statement."""
        self._at(node, lanes)
        evaluation = Evaluation(self)
        if self.launch.program.waits(node.condition):
            yield from self._wait_for_calls(node.condition, lanes, evaluation)
        return evaluation.value(node.condition, lanes)

    def seq(self, node: s.Seq, lanes: Lanes, exits: Exits | None) -> Steps:
        program = self.launch.program
        for child in node.stmts:
            leaf = _LEAVES.get(type(child))
            if leaf is not None and not program.waits(child):
                self._at(child, lanes)
                self._leaf(leaf, child, lanes, Evaluation(self))
            else:
                lanes = yield from self.stmts(child, lanes, exits)
                if not lanes.count:
                    return lanes
        return lanes

    def branch(self, node: s.If, lanes: Lanes, exits: Exits | None) -> Steps:
        condition = yield from self._condition(node, lanes)
        if condition.all():
            return (yield from self.stmts(node.then, lanes, exits))
        if not condition.any():
            return lanes if node.otherwise is None else (yield from self.stmts(node.otherwise, lanes, exits))
        condition = spread(condition, lanes.count)
        sides = [(node.then, lanes.only(condition)), (node.otherwise, lanes.only(~condition))]
        if self.launch.program.waits(node):
            return (yield from run_sides(self, sides, lanes, exits))
        after = []
        for side, part in sides:
            after.append(part if side is None else (yield from self.stmts(side, part, exits)))
        return merge(after, lanes)

    def loop(self, node: s.For, lanes: Lanes, exits: Exits | None) -> Steps:
        self._at(node, lanes)
        evaluation = Evaluation(self)
        first = np.asarray(evaluation.value(node.start, lanes))
        end = first + evaluation.value(node.extent, lanes)
        inside, left, entered = lanes, list[Lanes](), lanes
        index = first
        while inside.count:
            stays = index < end
            if not stays.all():
                if len(stays) == 1:
                    break
                left.append(inside.only(~stays))
                inside = inside.only(stays)
                index, end = pick_value(index, stays), pick_value(end, stays)
                continue
            self.values[node.var] = put_value(None, index, inside, self.team.size)
            before = inside
            inside, broken = yield from self._once(node.body, inside)
            left.extend(broken)
            if inside.count != before.count and inside.count:
                kept = np.isin(before.index, inside.index)
                index, end = pick_value(index, kept), pick_value(end, kept)
            index = index + node.step
        return merge([*left, inside], entered)

    def _once(self, body: s.Stmt, lanes: Lanes) -> Steps:
        """Run the body of a loop: the threads that come to its next iteration, and those that left the loop."""
        exits = Exits()
        behind = yield from self.stmts(body, lanes, exits)
        return merge([behind, *exits.continued], lanes), exits.broken

    def repeat(self, node: s.While, lanes: Lanes, exits: Exits | None) -> Steps:
        inside, left = lanes, list[Lanes]()
        asks = self.launch.program.reads_memory(node)
        while inside.count:
            condition = yield from self._condition(node, inside)
            if not condition.any():
                break
            if not condition.all():
                condition = spread(condition, inside.count)
                left.append(inside.only(~condition))
                inside = inside.only(condition)
            inside, broken = yield from self._once(node.body, inside)
            left.extend(broken)
            if asks:
                yield POLL
        return merge([*left, inside], lanes)

    def leave(self, node: s.Break | s.Continue, lanes: Lanes, exits: Exits | None) -> Steps:
        yield from ()
        assert exits is not None
        (exits.broken if isinstance(node, s.Break) else exits.continued).append(lanes)
        return NOBODY

    def leave_function(self, node: s.Return, lanes: Lanes, exits: Exits | None) -> Steps:
        self._at(node, lanes)
        evaluation = Evaluation(self)
        if self.launch.program.waits(node):
            yield from self._wait_for_calls(node, lanes, evaluation)
        self.returned.append((lanes, None if node.value is None else evaluation.value(node.value, lanes)))
        if self.function.kind == "kernel":
            self.launch.barriers.ended(self.team, lanes)
        return NOBODY

    def declare(self, node: s.Declare, lanes: Lanes, evaluation: Evaluation) -> None:
        var, size = node.var, self.team.size
        self.unset.pop(var, None)
        if node.init is not None:
            value = evaluation.value(node.init, lanes)
            if isinstance(value, View):
                value = value.pointers
            self.values[var] = put_value(None, value, lanes, size)
        elif isinstance(var.type, BufferType):
            self.values[var] = self._array(var, var.type, evaluation, lanes)
        else:
            self.values[var] = undefined(var.type)
            self.unset[var] = np.ones(size, np.bool_)

    def _array(self, var: e.Var, type_: BufferType, evaluation: Evaluation, lanes: Lanes) -> View:
        view = self._view(Pointers((), None, ZERO, ZERO, type_.dtype), type_, evaluation, lanes)
        last = sum((int(n[0]) - 1) * int(stride[0]) for n, stride in zip(view.shape, view.strides, strict=True))
        count = 0 if any(int(n[0]) == 0 for n in view.shape) else last + 1
        nbytes, unit = count * type_.lanes * type_.dtype.nbytes, type_.dtype.nbytes
        if type_.space == "shared":
            memory, segment = self.launch.shared(var, nbytes, unit), self.team.slot
        else:
            memory = Memory(var.name, "local", nbytes, self.team.size, unit, 0)
            segment = everyone(self.team.size).index
        return View(Pointers((memory,), None, segment, ZERO, type_.dtype), view.shape, view.strides, type_.lanes)

    def assign(self, node: s.Assign, lanes: Lanes, evaluation: Evaluation) -> None:
        value = evaluation.value(node.value, lanes)
        if isinstance(value, View):
            value = value.pointers
        self.values[node.var] = put_value(self.values.get(node.var), value, lanes, self.team.size)
        unset = self.unset.get(node.var)
        if unset is not None:
            unset[lanes.index] = False
            if not unset.any():
                del self.unset[node.var]

    def store(self, node: s.Store, lanes: Lanes, evaluation: Evaluation) -> None:
        value = evaluation.value(node.value, lanes)
        pointers = evaluation.place(node.buffer, node.indices, lanes)
        dtype = element_dtype(node.buffer.type)
        if node.mask is None:
            self.launch.store(self, lanes, pointers, dtype, value)
            return
        mask = spread(evaluation.value(node.mask, lanes), lanes.count)
        columns = mask if mask.ndim == 2 else mask[:, None]
        values = spread(value if value.ndim == 2 else value[:, None], lanes.count)
        for lane in range(columns.shape[1]):
            wanted = columns[:, lane]
            if wanted.any():
                part = pick_value(pointers, wanted).moved(np.array([lane]))
                self.launch.store(self, lanes.only(wanted), part, dtype, values[wanted, lane])

    def evaluate(self, node: s.Evaluate, lanes: Lanes, evaluation: Evaluation) -> None:
        evaluation.value(node.expr, lanes)

    def check(self, node: s.Assert, lanes: Lanes, evaluation: Evaluation) -> None:
        holds = evaluation.value(node.condition, lanes)
        if not holds.all():
            row = int(np.flatnonzero(~holds)[0])
            told = [spread(evaluation.value(value, lanes), lanes.count)[row].item() for value in node.values]
            raise RowError(row, node.fill_message(told))

    def show(self, node: s.Print, lanes: Lanes, evaluation: Evaluation) -> None:
        values = [evaluation.value(value, lanes) for value in node.values]
        arrays = [value.bits() if isinstance(value, Pointers) else value for value in values]
        rows = [spread(array, lanes.count) for array in arrays]
        for row in range(lanes.count):
            sys.stdout.write(python_format(node.text, [array[row].item() for array in rows]))

    def assembly(self, node: s.Assembly, lanes: Lanes, evaluation: Evaluation) -> None:
        raise UnsupportedOp("what assembly does is known to its target alone", hint="run the kernel on a device")


def _product(extents: tuple[Array, ...]) -> Array:
    result: Array = np.ones(1, np.int64)
    for extent in extents:
        result = result * extent
    return result


_CONTROL: dict[type, Callable[[Activation, Any, Lanes, Exits | None], Steps]] = {
    s.Seq: Activation.seq,
    s.If: Activation.branch,
    s.For: Activation.loop,
    s.While: Activation.repeat,
    s.Break: Activation.leave,
    s.Continue: Activation.leave,
    s.Return: Activation.leave_function,
}

_LEAVES: dict[type, Callable[[Activation, Any, Lanes, Evaluation], None]] = {
    s.Declare: Activation.declare,
    s.Assign: Activation.assign,
    s.Store: Activation.store,
    s.Evaluate: Activation.evaluate,
    s.Assert: Activation.check,
    s.Print: Activation.show,
    s.Assembly: Activation.assembly,
}
