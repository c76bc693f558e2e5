"""GEMV and skinny GEMM of packed codes: up to eight rows times a matrix of 4 or 8 bits, as fast as its codes are read.

A warp computes 16 columns of the result, or 32: lanes copy 16 bytes of codes of a column each to shared memory, several
of them ahead of what they multiply, and make factors of their own ones in registers: `cp.async` holds no register while
memory answers, and a lane waits for nobody but itself. `mma.sync` has these as its left operand, of 16 rows, and the
rows of x as the columns of its right one, so that eight rows take no longer than one and sums are of f32. Which
elements along k count as neighbours is the same for both operands, and nothing else counts: each lane takes those whose
codes it has read. The warps of a block share k in turns, and their sums are added in the same order in every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.intrinsics.mma import matrix_name
from hidet.cuda.schedules.packed_codes import CodeReader
from hidet.dims import Dim, ceildiv
from hidet.gpu.schedules.early_reads import read_early
from hidet.gpu.schedules.exchange import WARP, barrier, thread_in_block
from hidet.gpu.schedules.packed_operand import PackedOperand, accesses_in
from hidet.gpu.tile.tensors import GTensor
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Access, Bitcast, Expr, Var
from hidet.ir.func import Function
from hidet.ir.intrinsic import MatrixShape
from hidet.ir.types import PointerType, VectorType
from hidet.schedule.lowering import Lowering

MAX_ROWS = 8
"""Rows of x, which are the columns of an `mma`."""
MMA_COLUMNS = 16
"""Columns of the result, which are the rows of an `mma`."""
PART = 16
"""Bytes of codes that a lane reads at once."""
_SHARERS = 4
"""Lanes that read a column's codes."""
_WORDS = PART // 4
_COLUMNS = 2
"""Columns of a tile whose codes a lane reads."""
_NOTHING = build.const(0, dtypes.i32)
_X_LANES = 8
_RESIDENT_THREADS = 1024
"""Threads of a multiprocessor whose registers, 64 each, hold factors of one tile."""
_K_BITS = 40
"""More than the bits of k."""


@dataclass(frozen=True, slots=True)
class PackedTiling:
    """How a block works. warps: those that share k. tiles: of 16 columns. ahead: parts of codes of a column that a lane
    copies before it multiplies the first of them."""

    warps: int
    tiles: int
    ahead: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps * WARP

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.tiles * MMA_COLUMNS

    @property
    def shared_bytes(self) -> int:
        """Of a block: codes that are copied ahead, and the sums of its warps."""
        codes = self.ahead * self.tiles * _COLUMNS * self.threads * PART
        return codes + self.warps * MAX_ROWS * self.columns * 4

    def step(self, operand: PackedOperand) -> int:
        """Elements along k that the warps of a block multiply at a time."""
        return self.warps * chunk_of(operand)


def chunk_of(operand: PackedOperand) -> int:
    """Elements along k whose codes a warp reads at once."""
    return _SHARERS * PART * operand.per_byte


@dataclass(frozen=True, slots=True, eq=False)
class PackedSource:
    """The packed operand inside a kernel.

    operand: what it is. codes: where they start. row_bytes, k: sizes. parts: of a lane but the last one. lowering:
    reads tensors of scales and zeros. is_aligned: whether codes and x start at multiples of 16 bytes.
    """

    operand: PackedOperand
    codes: Expr
    row_bytes: Expr
    k: Expr
    parts: Expr
    lowering: Lowering
    is_aligned: bool


def parts_before_last(operand: PackedOperand, tiling: PackedTiling) -> Dim:
    """Parts of a lane along k but the last one, which alone may lie beyond the end."""
    return ceildiv(operand.k, tiling.step(operand)) - 1


def packed_gemv_kernel(
    name: str,
    a: GTensor,
    b: PackedSource,
    c: GTensor,
    rows: int,
    tiling: PackedTiling,
    *,
    epilogue: Callable[[Expr, Expr, Expr], Expr],
    weights: Collection[Var] = (),
) -> Function:
    """c = epilogue(a b^T, row, column) for a [rows, k] of f16 or bf16, at most `MAX_ROWS` rows of whole parts of 16
    bytes, and a packed b [n, k], whose rows are whole parts of 16 bytes, too; k is at most 2^29.

    weights: pointers to what nothing writes in a call. The grid has ceil(n / tiling.columns) blocks of `tiling.threads`
    threads. The parameters are left to the caller.
    """
    k, block = IRBuilder(), build.size_var("block")
    _Kernel(k, a, b, c, rows, tiling, block).write(epilogue, weights)
    # Else the assembler takes so many registers to begin the last part early that few blocks fit.
    resident = _RESIDENT_THREADS // (tiling.tiles * tiling.threads)
    attributes = (("min_blocks", max(1, resident)),) if b.is_aligned else ()
    return Function(name, (), k.body, "kernel", (block,), attributes=attributes)


_Reads = Sequence[Mapping[Access, Var]]
"""For each column of a lane, what its scale and zero are made of."""


@dataclass(frozen=True, slots=True, eq=False)
class _Result:
    """An element of the block's results: its place among them, whether it is there, and what is made of its total."""

    row: Expr
    column: Expr
    is_there: Expr
    total: Var
    value: Expr


class _Kernel:
    """The kernel under construction. Codes that start anywhere are read where they are multiplied."""

    def __init__(
        self, k: IRBuilder, a: GTensor, b: PackedSource, c: GTensor, rows: int, tiling: PackedTiling, block: Var
    ) -> None:
        self.k, self.a, self.b, self.c, self.rows, self.tiling = k, a, b, c, rows, tiling
        self.part = PART * b.operand.per_byte
        self.chunk = chunk_of(b.operand)
        nothing = build.cast(build.binary("shr", b.k, _K_BITS), dtypes.u32)
        self.reader = CodeReader.of(b.operand, self.chunk, k, nothing)
        self.has_tail = b.operand.k % tiling.step(b.operand) != 0
        self.accesses = [access for value in b.operand.values for access in accesses_in(value)]
        self.thread = k.let("thread", thread_in_block())
        self.warp = k.let("warp", self.thread // WARP)
        self.group = k.let("group", self.thread % WARP // _SHARERS)
        self.sharer = k.let("sharer", self.thread % _SHARERS)
        self.start = k.let("start", _i32(self.warp * self.chunk + self.sharer * self.part))
        self.end = k.let("end", _i32(b.k))
        self.first = k.let("first_column", block * tiling.columns)
        # Beyond the last column and the last row, those are read once more.
        numbers = [self.group + number for number in range(0, tiling.columns, 8)]
        self.columns = [k.let("column", build.minimum(self.first + n, c.columns - 1)) for n in numbers]
        self.codes = [k.let("codes", build.binary("add", b.codes, n * b.row_bytes)) for n in self.columns]
        self.ring: Var | None = None
        if b.is_aligned:
            shape = (tiling.ahead, len(self.columns), tiling.threads, _WORDS)
            self.ring = k.array("ring", dtypes.u32, *shape, space="shared")
        row = self.group if rows == MAX_ROWS else build.minimum(self.group, rows - 1)
        self.x = k.let("x", build.binary("add", a.pointer, row * a.row_stride))
        self.sums = [self._zeros() for _ in range(tiling.tiles)]
        dtype = b.operand.dtype
        self.mma = matrix_name("mma", MatrixShape(16, 8, 16, dtype, dtype, dtypes.f32))

    def write(self, epilogue: Callable[[Expr, Expr, Expr], Expr], weights: Collection[Var]) -> None:
        """All of the body."""
        k, ahead = self.k, self.tiling.ahead
        for number in range(ahead):
            self._copy(build.index(number))
        reads = self._read(build.index(0))
        results = self._results(epilogue, weights)
        with k.for_range("part", self.b.parts) as part:
            following = self._read(part + 1)
            self._multiply(part, reads, may_end=False)
            self._copy(part + ahead)
            for old, new in zip(reads, following, strict=True):
                k.assign_each(list(old.values()), list(new.values()))
        self._multiply(self.b.parts, reads, may_end=self.has_tail)
        self._finish(results)

    def _place(self, number: Expr) -> Expr:
        """Where along k the lane's part of the chunk `number` of its warp starts."""
        return self.k.let("place", _i32(number) * (self.tiling.warps * self.chunk) + self.start)

    def _inside(self, place: Expr) -> Expr:
        """Where the part at `place` is read: beyond the end the last one is read once more."""
        return self.k.let("inside", build.minimum(place, (self.end - 1) // self.part * self.part))

    def _copy(self, number: Expr) -> None:
        """Start to copy codes to shared memory; none beyond the end."""
        if self.ring is None:
            return
        k, place = self.k, self._place(number)
        offset = _i64(self._inside(place) // self.b.operand.per_byte)
        valid = k.let("valid", build.select(place < self.end, build.const(PART, dtypes.i32), _NOTHING))
        for n, codes in enumerate(self.codes):
            target = build.address(self.ring, number % self.tiling.ahead, n, self.thread, 0)
            k.run(intrinsic_call("cuda.copy_async_16", target, build.binary("add", codes, offset), valid))
        k.run(intrinsic_call("cuda.copy_async_commit"))

    def _read(self, number: Expr) -> _Reads:
        """Read scales and zeros."""
        b, found = self.b, list[Mapping[Access, Var]]()
        inside = self._inside(self._place(number))
        for column in self.columns:
            bindings = {b.operand.n_axis: column, b.operand.k_axis: _i64(inside)}
            found.append({access: self.k.let("read", b.lowering.resolve(access, bindings)) for access in self.accesses})
        return found

    def _words(self, number: Expr, place: Expr, column: int) -> Expr:
        """16 bytes of codes of a column, as words."""
        if self.ring is not None:
            return build.load(self.ring, number % self.tiling.ahead, column, self.thread, 0, lanes=_WORDS)
        offset = _i64(self._inside(place) // self.b.operand.per_byte)
        bytes_ = [Bitcast(build.load(self.codes[column], offset + n), dtypes.u8) for n in range(PART)]
        return Bitcast(_vector(bytes_), VectorType(dtypes.u32, _WORDS))

    def _multiply(self, number: Expr, values: _Reads, *, may_end: bool) -> None:
        """Multiply a part. values: of its scales and zeros. may_end: whether it may lie beyond the end of k."""
        k, b, reader = self.k, self.b, self.reader
        place = self._place(number)
        if self.ring is not None:
            k.run(intrinsic_call("cuda.copy_async_wait", self.tiling.ahead - 1))
        codes = [k.let("words", self._words(number, place, n)) for n in range(len(self.columns))]
        terms = []
        for column, reads in zip(self.columns, values, strict=True):
            bindings = {b.operand.n_axis: column, b.operand.k_axis: _i64(place)}
            scale, zero = (
                None if value is None else b.lowering.resolve(value, bindings, reads)
                for value in (b.operand.scale, b.operand.zero)
            )
            terms.append(reader.terms(k, scale, zero))
        x = [word for n in range(self.part // _X_LANES) for word in self._x_words(place + n * _X_LANES, may_end)]
        per_word = reader.per_word // 2
        totals = [self._zeros() for _ in self.sums] if reader.is_late else self.sums
        for n in range(_WORDS):
            right = reader.like_pairs(k, x[n * per_word : (n + 1) * per_word])
            left = [reader.pairs(k, build.extract(words, n), term) for words, term in zip(codes, terms, strict=True)]
            for sums, lower, upper in zip(totals, left[::2], left[1::2], strict=True):
                for at in range(0, per_word, 2):
                    self._mma(sums, (lower[at], upper[at], lower[at + 1], upper[at + 1]), (right[at], right[at + 1]))

        if reader.is_late:
            for tile, (sums, of_part) in enumerate(zip(self.sums, totals, strict=True)):
                for n in range(4):
                    scale = terms[2 * tile + n // 2].scale
                    assert scale is not None
                    k.store(sums, n, build.load(sums, n) + build.load(of_part, n) * scale)

    def _zeros(self) -> Var:
        """What an `mma` adds to."""
        sums = self.k.array("sums", dtypes.f32, 4)
        for n in range(4):
            self.k.store(sums, n, build.const(0.0, dtypes.f32))
        return sums

    def _mma(self, sums: Var, left: tuple[Expr, ...], right: tuple[Expr, ...]) -> None:
        k = self.k
        arrays = []
        for name, words in (("left", left), ("right", right)):
            array = k.array(name, dtypes.u32, len(words))
            for n, word in enumerate(words):
                k.store(array, n, word)
            arrays.append(build.address(array, 0))
        k.run(intrinsic_call(self.mma, build.address(sums, 0), *arrays))

    def _x_words(self, place: Expr, may_end: bool) -> Iterator[Expr]:
        """Eight neighbours of a row of x from `place` on, as words of two; 0 beyond the end."""
        k, end = self.k, self.end
        words = VectorType(dtypes.u32, _X_LANES // 2)
        if self.b.is_aligned:
            start = build.minimum(place, end - _X_LANES) if may_end else place
            words_of_x = Bitcast(build.binary("add", self.x, _i64(start)), PointerType(dtypes.u32))
            vector = k.let("x", build.load(words_of_x, 0, lanes=words.lanes))
            none = build.const(0, dtypes.u32)
            for n in range(words.lanes):
                word = build.extract(vector, n)
                yield k.let("word", build.select(place < end, word, none)) if may_end else word
            return
        nothing = build.const(0.0, self.a.dtype)
        elements = [build.load(self.x, _i64(build.minimum(place + n, end - 1))) for n in range(_X_LANES)]
        if may_end:
            elements = [build.select(place + n < end, element, nothing) for n, element in enumerate(elements)]
        vector = k.let("x", Bitcast(_vector(elements), words))
        yield from (build.extract(vector, n) for n in range(words.lanes))

    def _results(self, epilogue: Callable[[Expr, Expr, Expr], Expr], weights: Collection[Var]) -> list[_Result]:
        """The results of this thread, for which what the epilogue reads is on its way."""
        k, tiling, count = self.k, self.tiling, self.rows * self.tiling.columns
        found = []
        for number in range(0, count, tiling.threads):
            item = self.thread + number
            row, column = item // tiling.columns, item % tiling.columns
            is_there = build.logical_and(item < count, self.first + column < self.c.columns)
            total = Var("total", dtypes.f32)
            (value,) = read_early(k, [epilogue(total, row, self.first + column)], [total], is_there, weights)
            found.append(_Result(row, column, is_there, total, value))
        return found

    def _finish(self, results: Sequence[_Result]) -> None:
        """Add the sums of the warps, and store what the epilogue makes of them."""
        k, tiling, c = self.k, self.tiling, self.c
        parts = k.array("parts", dtypes.f32, tiling.warps, MAX_ROWS, tiling.columns, space="shared")
        for tile, sums in enumerate(self.sums):
            for n in range(4):
                row, column = self.sharer * 2 + n % 2, self.group + (tile * MMA_COLUMNS + n // 2 * 8)
                k.store(parts, (self.warp, row, column), build.load(sums, n))
        k.emit(barrier())
        for own in results:
            with k.if_(own.is_there):
                k.declare(own.total, build.load(parts, 0, own.row, own.column))
                for warp in range(1, tiling.warps):
                    k.assign(own.total, own.total + build.load(parts, warp, own.row, own.column))
                k.store(c.pointer, c.row_stride * own.row + (self.first + own.column), own.value)


def _i32(number: Expr) -> Expr:
    return build.cast(number, dtypes.i32)


def _i64(number: Expr) -> Expr:
    return build.cast(number, dtypes.i64)


def _vector(elements: Sequence[Expr]) -> Expr:
    """Scalars as a vector; their number is a power of two."""
    if len(elements) == 1:
        return elements[0]
    half = len(elements) // 2
    if half == 1:
        low, high = (build.broadcast(element, 2) for element in elements)
        return build.shuffle(low, high, (0, 2))
    return build.shuffle(_vector(elements[:half]), _vector(elements[half:]), range(len(elements)))
