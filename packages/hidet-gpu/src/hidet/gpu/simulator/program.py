"""The functions of a program, and which of their parts may wait for other threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.errors import UnsupportedOp
from hidet.gpu.simulator.meaning import Meaning, simple
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.node import IRNode
from hidet.ir.visit import walk

_ACROSS_BLOCKS = ("gpu.threadfence", "gpu.threadfence_system", "gpu.load_acquire", "gpu.atomic_add_release")


class Program:
    """Functions by name, and what the intrinsics that they call mean."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions
        self._meanings: dict[str, Meaning] = {}
        self._waits: dict[int, bool] = {}
        self._calls: dict[int, list[e.Call]] = {}
        self._reads: dict[int, bool] = {}
        self._turns: dict[int, bool] = {}
        calls = {
            name: [node for node in walk(function.body) if isinstance(node, e.Call)]
            for name, function in functions.items()
        }
        meanings = {
            node.callee: self.meaning(node.intrinsic)
            for nodes in calls.values()
            for node in nodes
            if node.intrinsic is not None
        }
        callees = {name: {node.callee for node in nodes} for name, nodes in calls.items()}
        asking = {name for name, function in functions.items() if self._asks(function)}
        self._waiting = _reaching(callees, asking | {name for name, what in meanings.items() if what.waits})
        self._letting_go = _reaching(callees, {name for name, what in meanings.items() if what.lets_go})

    def _asks(self, function: Function) -> bool:
        return any(isinstance(node, s.While) and self.reads_memory(node) for node in walk(function.body))

    def meaning(self, row: Intrinsic) -> Meaning:
        """What an intrinsic does. UnsupportedOp where its wheel does not say so."""
        found = self._meanings.get(row.name)
        if found is None:
            given = row.family.meaning(row.name)
            if given is None:
                raise UnsupportedOp(f"nothing says what the intrinsic {row.name} computes; only a target knows it")
            found = self._meanings[row.name] = given if isinstance(given, Meaning) else simple(given)
        return found

    def waits(self, node: IRNode) -> bool:
        """Whether a statement or expression may wait for other threads. A loop that reads memory may."""
        known = self._waits.get(id(node))
        if known is None:
            known = self._waits[id(node)] = any(
                (isinstance(part, e.Call) and part.callee in self._waiting)
                or (isinstance(part, s.While) and self.reads_memory(part))
                for part in walk(node)
            )
        return known

    def takes_turns(self, node: IRNode) -> bool:
        """Whether threads in a statement may wait for others that come to the same one later, or have been there."""
        known = self._turns.get(id(node))
        if known is None:
            calls = (part.callee for part in walk(node) if isinstance(part, e.Call))
            known = self._turns[id(node)] = not self._letting_go.isdisjoint(calls)
        return known

    def waiting_calls(self, roots: Sequence[IRNode]) -> list[e.Call]:
        """The calls in expressions that may wait, those inside others first."""
        found: dict[e.Call, None] = {}
        for root in roots:
            calls = self._calls.get(id(root))
            if calls is None:
                nodes = [node for node in walk(root) if isinstance(node, e.Call) and node.callee in self._waiting]
                calls = self._calls[id(root)] = list(reversed(nodes))
                self._refuse_conditional(root, calls)
            found.update(dict.fromkeys(calls))
        return list(found)

    def _refuse_conditional(self, root: IRNode, calls: Sequence[e.Call]) -> None:
        for node in walk(root) if calls else ():
            sides: tuple[e.Expr, ...] = ()
            if isinstance(node, e.Select) and node.condition.lanes == 1:
                sides = (node.a, node.b)
            elif isinstance(node, e.Binary) and node.op in ("land", "lor"):
                sides = (node.b,)
            for call in (part for side in sides for part in walk(side) if part in calls):
                assert isinstance(call, e.Call)
                raise UnsupportedOp(
                    f"{call.callee} waits for other threads, in an operand that only some threads evaluate",
                    hint="call it in a statement of its own",
                )

    def reads_memory(self, node: IRNode) -> bool:
        """Whether a statement reads memory or calls something, and so may wait for what others write."""
        known = self._reads.get(id(node))
        if known is None:
            known = self._reads[id(node)] = any(isinstance(part, e.Load | e.Call) for part in walk(node))
        return known

    def reached(self, kernel: Function) -> list[Function]:
        """A kernel and all functions it calls, directly or not."""
        found = {kernel.name: kernel}
        pending = [kernel]
        while pending:
            for node in walk(pending.pop().body):
                if isinstance(node, e.Call) and node.callee in self.functions and node.callee not in found:
                    found[node.callee] = self.functions[node.callee]
                    pending.append(found[node.callee])
        return list(found.values())

    def synchronises_blocks(self, kernel: Function) -> bool:
        """Whether blocks may tell each other through global memory what is ready."""
        return any(
            isinstance(node, e.Call) and node.callee in _ACROSS_BLOCKS
            for function in self.reached(kernel)
            for node in walk(function.body)
        )

    def spins(self, kernel: Function) -> bool:
        """Whether threads may ask memory again and again for what other blocks write."""
        return any(self._asks(function) for function in self.reached(kernel))


def _reaching(callees: Mapping[str, set[str]], wanted: set[str]) -> frozenset[str]:
    """Some callees, and all functions that call one of them, directly or not. callees: those of each function."""
    found = set(wanted)
    while True:
        more = {name for name, called in callees.items() if name not in found and called & found}
        if not more:
            return frozenset(found)
        found |= more
