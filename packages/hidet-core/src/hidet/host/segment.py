"""The code of a segment: a host function that reads addresses and sizes from the table and calls programs in order.

A program takes addresses and up to some fifty sizes. The sizes are the same wherever the program is called, so they
stand once, in a function that takes the table and the numbers of the slots where the addresses are: a call is short,
however many tasks share a program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

from hidet import dtypes
from hidet.dims import Dim, DimExpr
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.func import APART, Function, Module
from hidet.ir.stmt import Invoke, Stmt
from hidet.ir.types import PointerType, element_dtype
from hidet.schedule.rule import Program

Address = tuple[int, Dim]
"""A slot of the table, and how many elements after the address in it a tensor starts."""

CALLS_A_FUNCTION = 256
"""A segment of more calls is written as several functions: what compilers do with one grows faster than its length."""

Number = int | tuple[int]
"""A number that is known, or the slot of the table in which it is."""


class SegmentCode:
    """Collects the calls of one segment. size_slot: the slot of the table that holds a symbolic size."""

    def __init__(self, symbol: str, size_slot: Callable[[DimExpr], int]) -> None:
        self._symbol = symbol
        self._size_slot = size_slot
        self._table = _table()
        self._calls: list[Invoke] = []
        self._callers: dict[tuple[object, ...], Function] = {}
        self._programs: dict[str, None] = {}
        self._content: list[object] = [symbol]

    def call(self, entry: str, program: Program, addresses: Sequence[Address], *, is_independent: bool = False) -> None:
        """Call `program`, whose entry is linked as `entry`, with tensors and scratch buffers at `addresses`.
        is_independent: as of `Invoke`."""
        shifted = tuple([number for number, (_, offset) in enumerate(addresses) if offset != 0])
        # Tasks with the same program have the same object.
        caller = self._callers.get((program, shifted))
        if caller is None:
            caller = self._callers[program, shifted] = self._caller(entry, program, len(addresses), shifted)
            self._programs[entry] = None
        slots = [slot for slot, _ in addresses]
        offsets = [self._number(addresses[number][1]) for number in shifted]
        arguments = (*map(build.index_number, slots), *_arguments(offsets, self._table))
        self._calls.append(Invoke(caller.name, (self._table, *arguments), is_independent))
        self._content.append((caller.name, slots, offsets, is_independent))

    def module(self) -> Module:
        """The segment's function, its parts where it is long, and those that it calls programs through."""
        starts = range(0, len(self._calls), CALLS_A_FUNCTION)
        runs = [build.seq(self._calls[start : start + CALLS_A_FUNCTION]) for start in starts]
        parts: list[Function] = []
        body: Stmt = build.seq(self._calls)
        if len(runs) > 1:
            names = [f"{self._symbol}_part{number}" for number in range(len(runs))]
            pairs = zip(names, runs, strict=True)
            parts = [Function(name, (self._table,), run, kind="host", attributes=APART) for name, run in pairs]
            body = build.seq([Invoke(name, (self._table,)) for name in names])
        function = Function(self._symbol, (self._table,), body, kind="host")
        uses = Counter([call.function for call in self._calls])
        # A program that is called often would be copied to every place.
        callers = [replace(f, attributes=APART) if uses[f.name] > 1 else f for f in self._callers.values()]
        return Module((*callers, *parts, function), self._symbol, tuple(self._programs))

    def digest(self) -> str:
        """What the module is known by: that of all it is written from."""
        return blake2b(repr(self._content).encode(), digest_size=32).hexdigest()

    def _caller(self, entry: str, program: Program, count: int, shifted: tuple[int, ...]) -> Function:
        """A function of the table, `count` slots, and elements to add to those addresses that `shifted` numbers."""
        table = _table()
        params = program.module.function(program.module.entry).params[:count]
        slots = [build.size_var(f"{param.name}_slot") for param in params]
        offsets = {number: build.size_var(f"{params[number].name}_offset") for number in shifted}
        arguments: list[Expr] = []
        for number, (param, slot) in enumerate(zip(params, slots, strict=True)):
            base = Bitcast(build.load(table, slot), PointerType(element_dtype(param.type)))
            arguments.append(build.address(base, offsets[number]) if number in offsets else base)
        sizes = [self._number(size) if isinstance(size, DimExpr) else size for size in program.arguments]
        arguments += _arguments(sizes, table)
        name = f"{self._symbol}_call{len(self._callers)}"
        self._content.append((name, entry, count, shifted, sizes))
        return Function(name, (table, *slots, *offsets.values()), Invoke(entry, tuple(arguments)), kind="host")

    def _number(self, size: Dim) -> Number:
        """What the code reads a size from: itself, or the slot of the table."""
        return (self._size_slot(size),) if isinstance(size, DimExpr) else size


def _arguments(numbers: Sequence[Number], table: Var) -> list[Expr]:
    return [build.load(table, n[0]) if isinstance(n, tuple) else build.index_number(n) for n in numbers]


def _table() -> Var:
    return Var("table", PointerType(dtypes.i64))
