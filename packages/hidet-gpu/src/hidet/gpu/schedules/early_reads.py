"""What the end of a kernel reads, read before its loop: the answer is there when the sums are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hidet.dtypes import DType
from hidet.gpu.schedules.lanes import replaced
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Load, Select, Var
from hidet.ir.visit import walk


def read_early(
    k: IRBuilder, values: Sequence[Expr], totals: Collection[Var], is_there: Expr, weights: Collection[Var]
) -> list[Expr]:
    """`values`, expressions of `totals`, where what they read of memory has been read to variables.

    is_there: the condition under which they are asked for. weights: pointers to what nothing writes in a call; those
    reads come first, so that they may stand before the wait for the kernel in front (`hidet.gpu.weights`). What
    depends on a total or on a condition, and vectors, are left where they are.
    """
    loads = list(dict.fromkeys(load for value in values for load in _unconditional_loads(value, totals)))
    known: dict[Expr, Expr] = {}
    for load in sorted(loads, key=lambda load: not _reads_weight(load, weights)):
        assert isinstance(load.type, DType)
        early = k.let("early", build.const(0, load.type))
        with k.if_(is_there):
            k.assign(early, load)
        known[load] = early
    return [replaced(value, known) for value in values]


def _unconditional_loads(value: Expr, totals: Collection[Var]) -> Iterator[Load]:
    """Loads of scalars at places that are known beforehand, which every evaluation of `value` makes."""
    stack: list[Expr] = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, Load) and node.lanes == 1 and node.mask is None:
            places = [inner for index in node.indices for inner in walk(index)]
            if not any(isinstance(inner, Load) or inner in totals for inner in places):
                yield node
        elif isinstance(node, Select):
            stack.append(node.condition)
        else:
            stack += [child for child in node.children() if isinstance(child, Expr)]


def _reads_weight(load: Load, weights: Collection[Var]) -> bool:
    return any(node in weights for node in walk(load.buffer))
