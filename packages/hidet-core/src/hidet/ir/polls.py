"""Where code of the host looks whether its call is to end: in loops of users' functions, which may have no end.

    while condition:                    turns = turns + 1, and every `TURNS` of them a poll
    for i in range(n):                  the same, where its body has loops of its own or leaves it
    for i in range(n), innermost        cut into parts of `PART` turns with polls between: its body stays as it is

A function counts the turns of all its loops together. What a poll (the intrinsic `POLL`) does is the target's affair.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hidet import dtypes
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.common_intrinsics import POLL
from hidet.ir.expr import Call, Const, Var
from hidet.ir.func import Function, Module
from hidet.ir.intrinsic_call import call_intrinsic
from hidet.ir.visit import has_statement, statements, walk

TURNS = 4096
PART = 1 << 16


def with_polls(module: Module, *, in_kernels: bool) -> Module:
    """The module with polls in host functions and in what these call.

    in_kernels: in kernels and what they call as well, for targets that run these on the host. There, and in what is
    called, loops of known length have none.
    """
    functions = {function.name: function for function in module.functions}
    kernels = [function.name for function in module.functions if function.kind == "kernel"]
    left_out = frozenset() if in_kernels else _reached(functions, kernels)
    changed = [f if f.name in left_out else _Polling(f).run() for f in module.functions]
    return replace(module, functions=tuple(changed))


def _reached(functions: Mapping[str, Function], names: Iterable[str]) -> frozenset[str]:
    """These functions and what they call."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in functions and name not in found:
            found.add(name)
            pending += [node.callee for node in walk(functions[name].body) if isinstance(node, Call)]
    return frozenset(found)


class _Polling:
    """One function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.turns = Var("turns", dtypes.i64)
        self.is_counted = False

    def run(self) -> Function:
        """The function; itself where it has nothing to poll in."""
        body = self.stmt(self.function.body)
        if self.is_counted:
            body = build.seq([s.Declare(self.turns, build.index(0)), body])
        return self.function if body is self.function.body else replace(self.function, body=body)

    def stmt(self, node: s.Stmt) -> s.Stmt:
        """A statement with polls in its loops."""
        if not node.holds_statements:
            return node
        rebuilt: s.Stmt = node.rebuild(lambda child: self.stmt(child) if isinstance(child, s.Stmt) else child)
        if isinstance(node, s.While):
            assert isinstance(rebuilt, s.While)
            return s.While(rebuilt.condition, build.seq([*self.polls(node.body), rebuilt.body]), rebuilt.loc)
        if not isinstance(node, s.For) or self.function.kind != "host" or _turns(node) <= PART:
            return rebuilt
        assert isinstance(rebuilt, s.For)
        if _is_innermost(node.body):
            return _in_parts(rebuilt)
        return _with_body(rebuilt, build.seq([*self.polls(node.body), rebuilt.body]))

    def polls(self, body: s.Stmt) -> list[s.Stmt]:
        """What stands at the begin of a loop's body."""
        if has_statement(body, s.Launch) or has_statement(body, s.Invoke):
            return [_poll()]
        self.is_counted = True
        is_due = build.equal(build.binary("mod", self.turns, TURNS), 0)
        return [s.Assign(self.turns, self.turns + 1), s.If(is_due, _poll())]


def _poll() -> s.Stmt:
    return s.Evaluate(call_intrinsic(POLL))


def _turns(loop: s.For) -> float:
    """Turns of a loop and of those in it all together, infinite where they are not known."""
    endless = any(isinstance(node, s.While | s.Launch | s.Invoke) for node in statements(loop))
    if endless or not isinstance(loop.extent, Const):
        return math.inf
    own = -(-int(loop.extent.value) // loop.step)  # type: ignore[arg-type]  # extents are integers
    return own * max([1, *map(_turns, _loops_in(loop.body))])


def _loops_in(body: s.Stmt) -> list[s.For]:
    """The outermost loops in a statement."""
    if isinstance(body, s.For):
        return [body]
    return [loop for child in body.children() if isinstance(child, s.Stmt) for loop in _loops_in(child)]


def _is_innermost(body: s.Stmt) -> bool:
    """Whether nothing in the body of a loop takes long, or leaves the loop."""
    kinds = (s.For, s.While, s.Launch, s.Invoke, s.Break, s.Return)
    return not any(isinstance(node, kinds) for node in statements(body))


def _in_parts(loop: s.For) -> s.Stmt:
    """A loop as loops over parts of it, with a poll before each but the first."""
    part, whole = build.size_var("part"), Var("extent", dtypes.i64)
    size = build.index(PART * loop.step)
    begin = part * size
    inner = s.For(
        loop.var, loop.start + begin, build.minimum(size, whole - begin), loop.body, loop.step, loop.kind, loop.loc
    )
    parts = build.binary("floordiv", whole + (size - 1), size)
    body = build.seq([s.If(part > 0, _poll()), inner])
    return build.seq([s.Declare(whole, loop.extent), s.For(part, build.index(0), parts, body, loc=loop.loc)])


def _with_body(loop: s.For, body: s.Stmt) -> s.For:
    return s.For(loop.var, loop.start, loop.extent, body, loop.step, loop.kind, loop.loc)
