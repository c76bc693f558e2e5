"""Where the matrices of one head lie, as a kernel of attention sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.lower.fragment import ALL_LANES
from hidet.gpu.tile.templates.attention import Band, Score, Visible
from hidet.gpu.tile.tensors import Computed, Gathered, GTensor, computed
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.operators.rules import clamped_position
from hidet.schedule.attention_problem import AttentionProblem, Placement
from hidet.schedule.lowering import KernelScope

_MANY_KEYS = 1 << 20
"""More than a tile has."""
COPY_BYTES = 16
"""What addresses are multiples of in kernels that copy in the background."""


class HeadScope:
    """Parameters of a kernel that computes attention for one head a block, and the matrices of that head.

    names: of the tensors that it reads and writes ("q", "k", "v", "mask", "ends_q", "ends_k", "out", "logsumexp").
    stacked: the rows of all heads of a group are one matrix, the heads one after the other, so that they share loads of
    keys and values. leading, group: the block's indices of the problem's leading axes, and of the head in its group.
    rows, length: rows of queries and of keys; most_rows: the most that a head has. values: what matrices depend on
    besides these indices, as variables with their values, in order: where a packed sequence lies.
    """

    def __init__(self, problem: AttentionProblem, names: Sequence[str], *, stacked: bool) -> None:
        self.problem = problem
        self.stacked = stacked
        self.scope = KernelScope()
        self.pointers = {
            name: self.scope.pointer(name, place.tensor.type.dtype)
            for name, place in problem.tensors().items()
            if name in names
        }
        self._sizes: dict[tuple[str, str], Expr] = {}
        self.leading: list[Expr] = [self._index(f"outer{n}", extent) for n, extent in enumerate(problem.leading)]
        self.group: Expr = build.index(0) if stacked else self._index("head", problem.group)
        self._queries = self.scope.size(problem.queries, "queries")
        self.most_rows = self._queries * self.scope.size(problem.group, "group") if stacked else self._queries
        self.rows, self.length = self.most_rows, self.scope.size(problem.keys, "keys")
        self.values: list[tuple[Var, Expr]] = []
        self._firsts: dict[str, Expr] = {}
        if problem.packed is not None:
            packed = problem.packed
            first, self.rows = self._sequence("ends_q", packed.ends_q, packed.total_q, self.rows)
            first_key, self.length = self._sequence("ends_k", packed.ends_k, packed.total_k, self.length)
            self._firsts = {"q": first, "out": first, "logsumexp": first, "k": first_key, "v": first_key}

    def _sequence(self, name: str, ends: Placement, total: Dim, most: Expr) -> tuple[Var, Var]:
        """The first row of the block's sequence and how many it has, which are inside of the tensor, whatever its ends
        say."""
        base, rows = self.base(ends, name), self.scope.size(total, "total")

        def position(number: int) -> Expr:
            return clamped_position(build.load(base, number * self._stride(name, "row", ends.row)), rows)

        def known(value: Expr) -> Expr:
            return _natural(_uniform(build.cast(value, dtypes.i32)))

        first, count = build.size_var(f"first_{name[-1]}"), build.size_var(f"rows_{name[-1]}")
        length = build.minimum(build.maximum(position(1) - first, 0), most)
        self.values += [(first, known(position(0))), (count, known(length))]
        return first, count

    def band(self) -> Band:
        """Which keys a row sees by its number."""
        left, right = self.problem.window
        if self.problem.packed is None:
            return Band(high=None if right is None else build.index(right))
        # The last row has its place at the last key.
        ahead = self.length - self.rows
        low = None if left is None else ahead - self.scope.size(left, "left")
        high = None if right is None else ahead + self.scope.size(right, "right")
        return Band(low, high, may_be_empty=True)

    @staticmethod
    def _index(name: str, extent: Dim) -> Expr:
        return build.index(0) if extent == 1 else build.size_var(name)

    def axes(self) -> list[tuple[Expr, Expr]]:
        """The block's indices with their extents in the kernel, outermost first."""
        indices = self.leading if self.stacked else [*self.leading, self.group]
        extents = head_extents(self.problem, stacked=self.stacked)
        return [(index, self.scope.size(extent, "heads")) for index, extent in zip(indices, extents, strict=True)]

    def base(self, place: Placement, name: str) -> Expr:
        """The address of the head's first element."""
        pointer: Expr = self.pointers[name]
        steps = [(index, stride) for index, stride in zip(self.leading, place.leading, strict=True) if stride != 0]
        if place.group != 0:
            steps.append((self.group, place.group))
        offset = build.flatten([i for i, _ in steps], [self._stride(name, n, d) for n, (_, d) in enumerate(steps)])
        if name in self._firsts:
            # A parameter of its own: compilers would add multiples of one stride up for each copy of a loop.
            offset = offset + self._firsts[name] * self._stride(name, "first", place.row)
        return build.binary("add", pointer, offset) if steps or name in self._firsts else pointer

    def matrix(self, name: str, columns: int) -> GTensor | Computed:
        """The head's matrix: as it lies, where rows are regular and elements neighbours."""
        place = self.problem.tensors()[name]
        rows = self.length if name in ("k", "v") else self.rows
        base, step = self.base(place, name), row_step(self.problem, place, stacked=self.stacked)
        if step is not None and (place.inner == 1 or columns == 1):
            return GTensor(base, rows, build.index(columns), self._stride(name, "row", step), alignment(place))
        return self.elements(name, columns, place.dtype)

    def elements(self, name: str, columns: int, dtype: DType) -> Computed:
        """The head's matrix, each element of it read and converted to `dtype` where it is loaded."""
        place = self.problem.tensors()[name]
        base, rows = self.base(place, name), self.length if name in ("k", "v") else self.rows

        def element(row: Expr, column: Expr) -> Expr:
            value = build.load(base, self.row_offset(place, name, row) + column * self.inner(place, name))
            return build.cast(value, dtype)

        return computed(dtype, rows, build.index(columns), element)

    def queries(self) -> GTensor | Gathered | Computed:
        """The matrix of queries: as it lies, or by parts of its rows where heads of a group do not follow each other
        regularly."""
        place, columns = self.problem.q, self.problem.depth
        found = self.matrix("q", columns)
        if isinstance(found, GTensor) or (place.inner != 1 and columns != 1):
            return found
        row, column = build.size_var("row"), build.size_var("column")
        start, end, at = (build.size_var(name) for name in ("start", "end", "at"))
        # Rows beyond the last one have no elements, but places are computed for them as well.
        starts = self.row_offset(place, "q", build.minimum(row, self.rows - 1))
        ends = build.select(row < self.rows, build.index(columns), build.index(0))
        return Gathered(
            self.base(place, "q"),
            self.rows,
            build.index(columns),
            row,
            ((start, starts), (end, ends)),
            column,
            ((at, column),),
            start + at,
            at < end,
            math.gcd(alignment(place), columns * place.dtype.nbytes),
        )

    def dense(self, name: str, columns: int) -> GTensor:
        """The head's matrix, which is known to have regular rows of neighbours."""
        found = self.matrix(name, columns)
        assert isinstance(found, GTensor)
        return found

    def row_offset(self, place: Placement, name: str, row: Expr) -> Expr:
        """Elements from the head's first one to a row."""
        step = row_step(self.problem, place, stacked=self.stacked)
        if step is not None:
            return row * self._stride(name, "row", step)
        head = build.cast(build.cast(row, dtypes.u32) // build.cast(self._queries, dtypes.u32), dtypes.i64)
        query = row - head * self._queries
        return head * self._stride(name, "group", place.group) + query * self._stride(name, "row", place.row)

    def mask(self, first_key: Expr) -> Visible | None:
        """The mask's entry for (row, first key, number of the key from there), keys counted from `first_key`; None
        without a mask."""
        place = self.problem.mask
        if place is None:
            return None
        base = self.base(place, "mask")

        def entry(row: Expr, first: Expr, number: Expr) -> Expr:
            # What lies outside is not used; it must not be read for. Numbers of a few keys are compared in 32 bits.
            row, first = build.minimum(row, self.rows - 1), first_key + first
            last = build.cast(build.minimum(self.length - 1 - first, _MANY_KEYS), dtypes.i32)
            number = build.cast(build.minimum(build.cast(number, dtypes.i32), last), dtypes.i64)
            start = self.row_offset(place, "mask", row) + first * self.inner(place, "mask")
            return build.load(base, start + number * self.inner(place, "mask"))

        return entry

    def added(self, wide: DType, first_key: Expr) -> Score | None:
        """What a mask of floats makes of a score, in type `wide`; None where there is no such mask."""
        entry = self.mask(first_key)
        if entry is None or self._hides():
            return None
        return lambda total, row, first, number: total + build.cast(entry(row, first, number), wide)

    def visible(self, first_key: Expr) -> Visible | None:
        """Which keys a mask of bools lets a row see; None where there is no such mask."""
        return self.mask(first_key) if self._hides() else None

    def _hides(self) -> bool:
        return self.problem.mask is not None and self.problem.mask.dtype.is_bool

    def inner(self, place: Placement, name: str) -> Expr:
        """Elements from one of a row to the next."""
        return self._stride(name, "inner", place.inner)

    def _stride(self, name: str, axis: object, stride: Dim) -> Expr:
        """A stride as a parameter, the same one at every use."""
        key = (name, str(axis))
        if key not in self._sizes:
            self._sizes[key] = self.scope.size(stride, f"{name}_stride")
        return self._sizes[key]


def head_extents(problem: AttentionProblem, *, stacked: bool) -> tuple[Dim, ...]:
    """How many heads are computed, axis by axis."""
    return problem.leading if stacked else (*problem.leading, problem.group)


def row_count(problem: AttentionProblem, *, stacked: bool) -> Dim:
    """Rows of a head, or of all heads of a group."""
    return problem.rows if stacked else problem.queries


def row_step(problem: AttentionProblem, place: Placement, *, stacked: bool) -> Dim | None:
    """The stride between rows of a head, or of a group's heads one after the other; None where it is not regular."""
    has_query_heads = place is not problem.k and place is not problem.v
    if not stacked or not has_query_heads or problem.group == 1:
        return place.row
    if problem.queries == 1:
        return place.group
    return place.row if dims.prove_equal(place.group, place.row * problem.queries) is True else None


def alignment(place: Placement) -> int:
    """Bytes that rows are known to start at multiples of, up to COPY_BYTES, if the tensor does."""
    nbytes = place.dtype.nbytes
    strides = [stride for stride in (*place.leading, place.group, place.row) if stride != 0]
    return math.gcd(COPY_BYTES, *[dims.divisibility(stride) * nbytes for stride in strides])


def numbered(number: Expr, axes: Sequence[tuple[Expr, Expr]]) -> list[tuple[Var, Expr]]:
    """Each index from the number of the block, the last one fastest: variables and their values, in order.

    A grid has less than 2^31 blocks, so that 32-bit divisions do. What they give is the same for all threads; taking it
    from one lane says so to the assembler, which then keeps it, and all that follows from it, in uniform registers.
    """
    values: list[tuple[Var, Expr]] = []
    rest = build.cast(number, dtypes.i32)
    wanted = [(index, extent) for index, extent in axes if isinstance(index, Var)]
    for index, extent in reversed(wanted[1:]):
        count = build.cast(extent, dtypes.i32)
        above = Var("above", dtypes.i32)
        quotient = build.cast(rest, dtypes.u32) // build.cast(count, dtypes.u32)
        values.append((above, _uniform(build.cast(quotient, dtypes.i32))))
        values.append((index, _natural(rest - above * count)))
        rest = above
    if wanted:
        values.append((wanted[0][0], _natural(rest)))
    return values


def _uniform(value: Expr) -> Expr:
    """An i32 that all threads have, from one lane, so that the assembler knows."""
    return intrinsic_call("gpu.shuffle", ALL_LANES, value, 0, WARP)


def _natural(value: Expr) -> Expr:
    """An i32 that is not below zero as i64: the upper half is zero, not the sign, and takes no register."""
    return build.cast(build.cast(value, dtypes.u32), dtypes.i64)
