"""What the end of a kernel reads, read before its loop: the answer is there when the sums are."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hidet.dtypes import DType
from hidet.gpu.schedules.lanes import replaced
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Load, Select, Var
from hidet.ir.visit import walk


def read_early(k: IRBuilder, value: Expr, total: Var, is_there: Expr, weights: Collection[Var]) -> Expr:
    """`value`, an expression of `total`, where what it reads of memory has been read to variables.

    is_there: the condition under which `value` is asked for. weights: pointers to what nothing writes in a call; those
    reads come first, so that they may stand before the wait for the kernel in front (`hidet.gpu.weights`). What
    depends on the total or on a condition, and vectors, are left where they are.
    """
    loads = list(dict.fromkeys(_unconditional_loads(value, total)))
    known: dict[Expr, Expr] = {}
    for load in sorted(loads, key=lambda load: not _reads_weight(load, weights)):
        assert isinstance(load.type, DType)
        early = k.let("early", build.const(0, load.type))
        with k.if_(is_there):
            k.assign(early, load)
        known[load] = early
    return replaced(value, known)


def _unconditional_loads(value: Expr, total: Var) -> Iterator[Load]:
    """Loads of scalars at places that are known beforehand, which every evaluation of `value` makes."""
    stack: list[Expr] = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, Load) and node.lanes == 1 and node.mask is None:
            places = [inner for index in node.indices for inner in walk(index)]
            if total not in places and not any(isinstance(inner, Load) for inner in places):
                yield node
        elif isinstance(node, Select):
            stack.append(node.condition)
        else:
            stack += [child for child in node.children() if isinstance(child, Expr)]


def _reads_weight(load: Load, weights: Collection[Var]) -> bool:
    return any(node in weights for node in walk(load.buffer))
