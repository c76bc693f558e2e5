"""Neighbouring elements in one thread: what expressions read for several positions along an axis.

An access whose elements are neighbours along the axis becomes accesses of up to 16 bytes into registers; one that is
the same for all positions is made once; any other is made element by element where it is used. What a condition guards
is read under that condition, which has to be the same for all positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType

from hidet import dims
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Access, Binary, Const, Expr, Load, Reduce, Select, Size, Unary, Var
from hidet.ir.node import IRNode
from hidet.ir.stmt import Stmt
from hidet.ir.types import BufferType
from hidet.ir.visit import walk
from hidet.schedule.affine import as_dim
from hidet.schedule.lowering import Lowering

BYTES = 16
"""The widest access of a thread."""
LINE_BYTES = 128
"""A line of the caches."""
_MOST_PATHS = 4096

Path = tuple[tuple[Expr, bool], ...]
"""Conditions, and what they are, under which a part of an expression is evaluated."""


def registers(name: str, dtype: DType, count: int) -> Var:
    """An array of a thread."""
    return Var(name, BufferType(dtype, (build.index(count),), space="register"))


def step_along(indices: Sequence[Expr], strides: Sequence[Dim], axis: Var, lanes: int) -> Dim | None:
    """How far an access moves from one position of `axis` to the next; None when that is not regular.

    Positions are those of `lanes` neighbours, of which the first one's number is a multiple of `lanes`.
    """
    total: Dim = 0
    for index, stride in zip(indices, strides, strict=True):
        step = _step(index, axis, lanes)
        if step is None:
            return None
        total = total + step * stride
    return total


def is_aligned(indices: Sequence[Expr], strides: Sequence[Dim], axis: Var, lanes: int) -> bool:
    """Whether the first of `lanes` neighbours is surely a multiple of `lanes` elements from the tensor's start."""
    return all(
        dims.divisibility(stride) % lanes == 0 or _is_multiple(index, axis, lanes)
        for index, stride in zip(indices, strides, strict=True)
    )


def is_uniform(condition: Expr, axis: Var, lanes: int) -> bool:
    """Whether a condition is surely the same for `lanes` neighbours."""
    if lanes == 1 or axis not in walk(condition):
        return True
    if isinstance(condition, Unary):
        return condition.op == "lnot" and is_uniform(condition.a, axis, lanes)
    if not isinstance(condition, Binary):
        return False
    if condition.op in ("land", "lor"):
        return is_uniform(condition.a, axis, lanes) and is_uniform(condition.b, axis, lanes)
    if condition.op not in ("lt", "ge", "gt", "le"):
        return False
    # What grows along the axis crosses a multiple of the lanes between two groups of neighbours only.
    low, high = (condition.a, condition.b) if condition.op in ("lt", "ge") else (condition.b, condition.a)
    return _step(low - high, axis, lanes) == 1 and _is_multiple(low - high, axis, lanes)


def _step(index: Expr, axis: Var, lanes: int) -> Dim | None:
    if index is axis:
        return 1
    if axis not in walk(index):
        return 0
    if not isinstance(index, Binary):
        return None
    a, b = _step(index.a, axis, lanes), _step(index.b, axis, lanes)
    if a is None or b is None:
        return None
    if index.op in ("add", "sub"):
        return a + b if index.op == "add" else a - b
    factor = as_dim(index.b)
    if factor is None or b != 0:
        return None
    if index.op == "mul":
        return a * factor
    # Neighbours within a whole number of groups have the same quotient, and neighbouring remainders.
    in_step = a == 1 and dims.divisibility(factor) % lanes == 0 and factor != 0 and _is_multiple(index.a, axis, lanes)
    if index.op in ("floordiv", "mod") and in_step:
        return 0 if index.op == "floordiv" else 1
    return None


def _is_multiple(index: Expr, axis: Var, lanes: int) -> bool:
    """Whether an index is a multiple of `lanes` where `axis` is."""
    if lanes == 1 or index is axis:
        return True
    if isinstance(index, Const | Size):
        size = as_dim(index)
        return size is not None and dims.divisibility(size) % lanes == 0
    if not isinstance(index, Binary):
        return False
    a, b = _is_multiple(index.a, axis, lanes), _is_multiple(index.b, axis, lanes)
    if index.op == "mul":
        return a or b
    return index.op in ("add", "sub", "mod") and a and b


def is_inside(access: Access, extents: Mapping[Var, Dim]) -> bool:
    """Whether an access at axes alone, which have these extents, is surely inside of its tensor."""
    for index, extent in zip(access.indices, access.operand.shape, strict=True):
        if isinstance(index, Var) and index in extents:
            if dims.prove_equal(extents[index], extent) is not True:
                return False
        elif not (isinstance(index, Const) and index.value == 0):
            return False
    return True


def paths(values: Sequence[Expr]) -> dict[Expr, list[Path]]:
    """The accesses and reductions in some expressions, and the conditions under which each is evaluated.

    What is inside of a reduction is left out. ScheduleError where there are very many conditions.
    """
    found: dict[Expr, list[Path]] = {}
    seen: set[tuple[int, tuple[tuple[int, bool], ...]]] = set()
    stack: list[tuple[IRNode, Path]] = [(value, ()) for value in values]
    while stack:
        node, path = stack.pop()
        key = (id(node), tuple((id(condition), side) for condition, side in path))
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > _MOST_PATHS:
            raise ScheduleError(f"what is read under conditions has more than {_MOST_PATHS} ways to be reached")
        if isinstance(node, Access | Reduce):
            found.setdefault(node, []).append(path)
        if isinstance(node, Select):
            stack += [(node.condition, path), (node.a, (*path, (node.condition, True)))]
            stack.append((node.b, (*path, (node.condition, False))))
        elif not isinstance(node, Reduce):
            stack += [(child, path) for child in node.children()]
    return found


def replaced(value: Expr, replacements: Mapping[Expr, Expr]) -> Expr:
    """`value` with some of its nodes replaced, from the outside in: what is inside of them is not looked at."""
    known: dict[int, IRNode] = {}

    def visit(node: IRNode) -> IRNode:
        other = replacements.get(node) if isinstance(node, Expr) else None
        if other is not None:
            return other
        if id(node) not in known:
            known[id(node)] = node.rebuild(visit)
        return known[id(node)]

    result = visit(value)
    assert isinstance(result, Expr)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """What reading takes: registers to declare, statements that fill them, and values in the reader's lane number."""

    declarations: Stmt
    loads: Stmt
    values: list[Expr]


class LaneReader:
    """Reads for `lanes` neighbours along `axis`.

    lowering: has a buffer for each operand that is read. strides: of these operands. extents: of the axes that count
    whole tensors; an access at these alone is always inside. `lane` is the number of a neighbour.
    """

    def __init__(
        self,
        lowering: Lowering,
        strides: Mapping[Operand, Sequence[Dim]],
        extents: Mapping[Var, Dim],
        axis: Var,
        lanes: int,
    ) -> None:
        self.lowering, self.strides, self.extents = lowering, strides, extents
        self.axis, self.lanes = axis, lanes
        self.lane: Expr = build.size_var("lane") if lanes > 1 else build.index(0)

    def read(
        self,
        values: Sequence[Expr],
        first: Expr,
        bindings: Mapping[Var, Expr],
        copies: int = 1,
        copy: Expr | None = None,
        at_hand: Mapping[Access, Expr] = MappingProxyType({}),
    ) -> Reads:
        """The values of the neighbours from `first` on.

        copies: how many times what is read is kept at once, in arrays of as many parts; copy: which part this is.
        at_hand: where else the first neighbour of what some accesses read lies, in front of the others.
        """
        slot = build.index(0) if copy is None else copy
        here = {**bindings, self.axis: first}
        declared, k = IRBuilder(), IRBuilder()
        known: dict[Expr, Expr] = {}
        # What was read is bound as variables: its places are no sizes that lowering should turn into parameters.
        there = {**bindings, self.axis: first + self.lane}
        for condition in self._shared_conditions(values) if copies == 1 else ():
            known[condition] = k.let("holds", self.lowering.resolve(condition, here))
        for access, reached in paths(values).items():
            width = self._width(access) if isinstance(access, Access) else None
            guard = None if width is None else self._guard(access, reached)
            if width is None or guard is None:
                continue
            part = declared.array("part", access.dtype, copies * width)
            assert isinstance(access, Access)
            load = at_hand[access] if access in at_hand else self.lowering.resolve(access, here)
            condition = self.lowering.resolve(replaced(guard, known), here)
            with nullcontext() if isinstance(condition, Const) else k.if_(condition):
                self._load(k, part, load, slot * width, width)
            variable = Var("read", access.dtype)
            known[access] = variable
            there[variable] = build.load(part, slot * width + self.lane if width > 1 else slot)
            # A condition that it is part of is the same for all neighbours, so that the first one's value serves.
            here[variable] = build.load(part, slot * width)
        made = [self.lowering.resolve(replaced(value, known), there) for value in values]
        return Reads(declared.body, k.body, made)

    def each_lane(self, k: IRBuilder) -> AbstractContextManager[None]:
        """Do something for every neighbour."""
        return k.loop(self.lane, self.lanes, kind="unroll") if isinstance(self.lane, Var) else nullcontext()

    def _shared_conditions(self, values: Sequence[Expr]) -> list[Expr]:
        """Conditions on the axis that are the same for all neighbours, so that one answer serves them."""
        nodes = [node for value in values for node in walk(value)]
        conditions = dict.fromkeys(node.condition for node in nodes if isinstance(node, Select))
        return [
            condition
            for condition in conditions
            if self.lanes > 1 and self.axis in walk(condition) and is_uniform(condition, self.axis, self.lanes)
        ]

    def _width(self, access: Access) -> int | None:
        """Elements that are read at once: all neighbours or one for all; None when they are read one by one."""
        strides = self.strides[access.operand]
        step = step_along(access.indices, strides, self.axis, self.lanes)
        if self.lanes == 1 or step == 0:
            return 1
        return self.lanes if step == 1 and is_aligned(access.indices, strides, self.axis, self.lanes) else None

    def _guard(self, access: Expr, reached: Sequence[Path]) -> Expr | None:
        """The condition under which an access may be made; None when it is not the same for all neighbours."""
        always = build.logical_and()
        assert isinstance(access, Access)
        if () in reached or is_inside(access, self.extents):
            return always
        guard: Expr | None = None
        for path in reached:
            sides = [condition if side else build.unary("lnot", condition) for condition, side in path]
            if not all(is_uniform(condition, self.axis, self.lanes) for condition in sides):
                return None
            whole = build.logical_and(*sides)
            guard = whole if guard is None else build.binary("lor", guard, whole)
        return guard

    def _load(self, k: IRBuilder, part: Var, load: Expr, start: Expr, width: int) -> None:
        assert isinstance(load, Load)
        most = min(width, max(1, BYTES // load.dtype.nbytes))
        for done in range(0, width, most):
            k.store(part, start + done, build.load(load.buffer, load.indices[0] + done, lanes=most))
