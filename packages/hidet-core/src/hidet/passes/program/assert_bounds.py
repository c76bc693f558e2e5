"""Assertions of every index of an array, for code that runs on the host: the call ends before an access outside.

`hidet.gpu.check_bounds` is the same for kernels on a device, where a call cannot end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hidet import dtypes
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.bounds import Guards, bounds_of, guarded_loads
from hidet.ir.func import Function
from hidet.loc import Loc


def assert_bounds(function: Function) -> Function:
    """`function` with an assertion of every index before the access; itself when it accesses no array."""
    body = _checked(function.body)
    return function if body is function.body else replace(function, body=body)


def _checked(node: s.Stmt) -> s.Stmt:
    """A statement with the assertions of its expressions before it."""
    if isinstance(node, s.Seq):
        found = [_checked(child) for child in node.stmts]
        return node if all(new is old for new, old in zip(found, node.stmts, strict=True)) else build.seq(found)
    loc: Loc | None = getattr(node, "loc", None)
    roots = [child for child in node.children() if isinstance(child, e.Expr)]
    before = [check for root in roots for check in _checks_in(root, loc)]
    rebuilt: s.Stmt = node.rebuild(lambda child: _checked(child) if isinstance(child, s.Stmt) else child)
    if isinstance(node, s.Store):
        before += _checks_of(node, (), loc)
    if not before:
        return rebuilt
    if isinstance(rebuilt, s.While):
        # The condition is evaluated before each turn.
        leave = s.If(build.unary("lnot", rebuilt.condition), s.Break())
        return s.While(e.Const(True, dtypes.boolean), build.seq([*before, leave, rebuilt.body]), loc)
    return build.seq([*before, rebuilt])


def _checks_in(root: e.Expr, loc: Loc | None) -> list[s.Stmt]:
    return [check for load, guards in guarded_loads(root) for check in _checks_of(load, guards, loc)]


def _checks_of(access: e.Load | s.Store, guards: Guards, loc: Loc | None) -> list[s.Stmt]:
    """Assertions of an access that is made where `guards` hold."""
    checks: list[s.Stmt] = [
        s.Assert(bound.inside, bound.message, loc, (bound.last, bound.extent)) for bound in bounds_of(access)
    ]
    if checks and guards:
        return [_where(guards, build.seq(checks))]
    return checks


def _where(guards: Sequence[e.Expr], stmt: s.Stmt) -> s.Stmt:
    for guard in reversed(guards):
        stmt = s.If(guard, stmt)
    return stmt
