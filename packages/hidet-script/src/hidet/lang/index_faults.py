"""Accesses that leave their array whenever the script runs, refused when it is defined.

What is looked at runs certainly: it stands behind no condition, no loop of unknown length and nothing that may end the
call. There a sum of loop counters times numbers takes its smallest and its largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hidet.errors import ScriptError
from hidet.ir import stmt as s
from hidet.ir.bounds import IndexBound, bounds_of, guarded_loads
from hidet.ir.expr import Call, Const, Expr, Load, Var
from hidet.ir.visit import statements, walk
from hidet.lang.facts import IndexFacts
from hidet.loc import Loc

_JUMPS = (s.Break, s.Continue, s.Return, s.While, s.Assert)


def refuse_index_faults(body: s.Stmt, values: Mapping[Var, Expr], may_end: Callable[[str], bool]) -> None:
    """ScriptError for the first access of an array that is certainly made outside of it.

    values: of variables that never change. may_end: whether a call of the function of that name may end the whole call,
    or never return.
    """
    changing = {node.var for node in statements(body) if isinstance(node, s.Assign)}
    _Search(IndexFacts(dict(values)), changing, may_end).stmt(body)


@dataclass(slots=True)
class _Search:
    """Goes through statements that certainly run. counters: first and last value of each loop around."""

    facts: IndexFacts
    changing: set[Var]
    may_end: Callable[[str], bool]
    counters: dict[Var, tuple[int, int]] = field(default_factory=dict)

    def stmt(self, node: s.Stmt) -> bool:
        """Look at a statement; whether what follows it certainly runs, too."""
        if isinstance(node, s.Seq):
            return all(map(self.stmt, node.stmts))
        loc: Loc | None = getattr(node, "loc", None)
        for root in node.children():
            if isinstance(root, Expr) and not isinstance(node, s.While):
                self.expr(root, loc)
        if isinstance(node, s.Store) and node.mask is None:
            self.access(node, loc)
        if isinstance(node, s.Declare) and node.init is not None and node.var not in self.changing:
            self.facts.values[node.var] = node.init
        if isinstance(node, s.For):
            return self.loop(node)
        return not self.may_leave(node)

    def loop(self, node: s.For) -> bool:
        """A loop of known length, all of whose turns run if nothing in it leaves it."""
        start, extent = _number(node.start), _number(node.extent)
        is_left = self.may_leave(node.body)
        if start is None or extent is None:
            return not is_left
        turns = 1 if is_left else -(-extent // node.step)
        if extent <= 0:
            return True
        self.counters[node.var] = start, start + (turns - 1) * node.step
        self.stmt(node.body)
        del self.counters[node.var]
        return not is_left

    def may_leave(self, node: s.Stmt) -> bool:
        """Whether a statement may go elsewhere than to the next one."""
        if any(isinstance(part, _JUMPS) for part in statements(node)):
            return True
        parts = walk(node)
        return any(
            self.may_end(part.callee if isinstance(part, Call) else part.function)
            for part in parts
            if isinstance(part, Call | s.Invoke)
        )

    def expr(self, root: Expr, loc: Loc | None) -> None:
        """The loads of an expression that stand behind no condition."""
        for load, guards in guarded_loads(root):
            if not guards and load.mask is None:
                self.access(load, loc)

    def access(self, access: Load | s.Store, loc: Loc | None) -> None:
        for bound in bounds_of(access):
            extent = _number(bound.extent)
            if extent is None:
                continue
            self.compare(bound, bound.first, extent, loc)
            if bound.last is not bound.first:
                self.compare(bound, bound.last, extent, loc)

    def compare(self, bound: IndexBound, index: Expr, extent: int, loc: Loc | None) -> None:
        """ScriptError where the smallest or the largest value of an index is outside."""
        terms = self.facts.terms(index)
        factors = {atom: factor for atom, factor in terms.items() if isinstance(atom, Var) and atom in self.counters}
        if len(factors) + (None in terms) != len(terms):
            return
        shown = dict.fromkeys(node for node in walk(index) if isinstance(node, Var))
        for pick in (min, max):
            turn = {var: pick(self.counters[var], key=factor.__mul__) for var, factor in factors.items()}
            value = self.value(index, turn)
            if 0 <= value < extent:
                continue
            where = ", ".join(f"{var.name} is {self.value(var, turn)}" for var in shown)
            raise ScriptError(
                f"{bound.access}: index {value} of dim {bound.dim} is outside of its {extent} elements"
                + (f" when {where}" if where else ""),
                loc=loc,
                hint="a script has no negative indices" if value < 0 else None,
            )

    def value(self, index: Expr, turn: Mapping[Var, int]) -> int:
        """An index that is made of counters, where these have the values of `turn`."""
        terms = self.facts.terms(index)
        return terms.get(None, 0) + sum(terms.get(var, 0) * number for var, number in turn.items())


def _number(expr: Expr) -> int | None:
    return expr.value if isinstance(expr, Const) and isinstance(expr.value, int) else None
