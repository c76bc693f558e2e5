"""GEMV and skinny GEMM of packed codes: up to eight rows times a matrix of 4 or 8 bits, as fast as its codes are read.

A warp computes 16 columns of the result, or 32: lanes read 16 bytes of codes of a column each, several of them ahead of
what they multiply, and make factors of them in registers. `mma.sync` has these as its left operand, of 16 rows, and the
rows of x as the columns of its right one, so that eight rows take no longer than one and sums are of f32. Which
elements along k count as neighbours is the same for both operands, and nothing else counts: each lane takes those whose
codes it has read. The warps of a block share k in turns, and their sums are added in the same order in every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.intrinsics.mma import matrix_name
from hidet.cuda.schedules.packed_codes import CodeReader
from hidet.dims import Dim, ceildiv
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
_X_LANES = 8
_RESIDENT_THREADS = 1024
"""Threads of a multiprocessor whose registers, 64 each, hold what they read ahead of one tile, one part each."""
_K_BITS = 40
"""More than the bits of k."""


@dataclass(frozen=True, slots=True)
class PackedTiling:
    """How a block works. warps: those that share k. tiles: of 16 columns. ahead: parts of codes of a column that a lane
    reads before it multiplies the first of them."""

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

    def step(self, operand: PackedOperand) -> int:
        """Elements along k that the warps of a block multiply in a step."""
        return self.warps * self.ahead * chunk_of(operand)


def chunk_of(operand: PackedOperand) -> int:
    """Elements along k whose codes a warp reads at once."""
    return _SHARERS * PART * operand.per_byte


@dataclass(frozen=True, slots=True, eq=False)
class PackedSource:
    """The packed operand inside a kernel.

    operand: what it is. codes: where they start. row_bytes, k: sizes. steps: those along k but the last one. lowering:
    reads tensors of scales and zeros. is_aligned: whether codes and x start at multiples of 16 bytes.
    """

    operand: PackedOperand
    codes: Expr
    row_bytes: Expr
    k: Expr
    steps: Expr
    lowering: Lowering
    is_aligned: bool


def steps_before_last(operand: PackedOperand, tiling: PackedTiling) -> Dim:
    """Steps along k but the last one, in which alone something may lie beyond the end."""
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
) -> Function:
    """c = epilogue(a b^T, row, column) for a [rows, k] of f16 or bf16, at most `MAX_ROWS` rows of whole parts of 16
    bytes, and a packed b [n, k], whose rows are whole parts of 16 bytes, too; k is at most 2^29.

    The grid has ceil(n / tiling.columns) blocks of `tiling.threads` threads. The parameters are left to the caller.
    """
    k, block = IRBuilder(), build.size_var("block")
    _Kernel(k, a, b, c, rows, tiling, block).write(epilogue)
    # Else the assembler takes so many registers to begin the last step early that few blocks fit.
    resident = _RESIDENT_THREADS // (tiling.tiles * tiling.ahead * tiling.threads)
    attributes = (("min_blocks", max(1, resident)),) if b.is_aligned else ()
    return Function(name, (), k.body, "kernel", (block,), attributes=attributes)


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """What a lane has read ahead: where along k its part starts, and for each of its columns the words of codes and
    what scales and zeros are made of."""

    place: Var
    words: tuple[Var, ...]
    reads: tuple[Mapping[Access, Var], ...]


class _Kernel:
    """The kernel under construction."""

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
        row = self.group if rows == MAX_ROWS else build.minimum(self.group, rows - 1)
        self.x = k.let("x", build.binary("add", a.pointer, row * a.row_stride))
        self.sums = [self._zeros() for _ in range(tiling.tiles)]
        dtype = b.operand.dtype
        self.mma = matrix_name("mma", MatrixShape(16, 8, 16, dtype, dtype, dtypes.f32))

    def write(self, epilogue: Callable[[Expr, Expr, Expr], Expr]) -> None:
        """All of the body."""
        k, ahead = self.k, self.tiling.ahead
        stages = [self._read(build.index(n)) for n in range(ahead)]
        with k.for_range("step", self.b.steps) as step:
            for n, stage in enumerate(stages):
                self._multiply(stage, may_end=False)
                self._read((step + 1) * ahead + n, stage)
        for stage in stages:
            self._multiply(stage, may_end=self.has_tail)
        self._finish(epilogue)

    def _read(self, number: Expr, stage: _Stage | None = None) -> _Stage:
        """Read a lane's part of the chunk `number` of its warp, into new variables or those of a stage."""
        k, b = self.k, self.b
        place = _i32(number) * (self.tiling.warps * self.chunk) + self.start
        place = self._kept("place", place, None if stage is None else stage.place)
        # Beyond the end the last part is read once more; x is 0 there.
        inside = place
        if self.has_tail:
            inside = k.let("inside", build.minimum(place, (self.end - 1) // self.part * self.part))
        words, reads = list[Var](), list[Mapping[Access, Var]]()
        for n, (column, codes) in enumerate(zip(self.columns, self.codes, strict=True)):
            words.append(self._kept("words", self._codes(codes, inside), None if stage is None else stage.words[n]))
            bindings = {b.operand.n_axis: column, b.operand.k_axis: _i64(inside)}
            reads.append(
                {
                    access: self._kept(
                        "read", b.lowering.resolve(access, bindings), None if stage is None else stage.reads[n][access]
                    )
                    for access in self.accesses
                }
            )
        return _Stage(place, tuple(words), tuple(reads)) if stage is None else stage

    def _kept(self, name: str, value: Expr, var: Var | None) -> Var:
        if var is None:
            return self.k.let(name, value)
        self.k.assign(var, value)
        return var

    def _codes(self, row: Expr, place: Expr) -> Expr:
        """16 bytes of codes, as words."""
        offset = _i64(place // self.b.operand.per_byte)
        if self.b.is_aligned:
            start = build.binary("add", row, offset)
            return build.load(Bitcast(start, PointerType(dtypes.u32)), 0, lanes=_WORDS)
        bytes_ = [Bitcast(build.load(row, offset + n), dtypes.u8) for n in range(PART)]
        return Bitcast(_vector(bytes_), VectorType(dtypes.u32, _WORDS))

    def _multiply(self, stage: _Stage, *, may_end: bool) -> None:
        """Multiply what a stage has. may_end: whether a part of it may lie beyond the end of k."""
        k, b, reader = self.k, self.b, self.reader
        terms = []
        for column, reads in zip(self.columns, stage.reads, strict=True):
            bindings = {b.operand.n_axis: column, b.operand.k_axis: _i64(stage.place)}
            values = [
                None if value is None else b.lowering.resolve(value, bindings, reads)
                for value in (b.operand.scale, b.operand.zero)
            ]
            terms.append(reader.terms(k, *values))
        x = [word for n in range(self.part // _X_LANES) for word in self._x_words(stage.place + n * _X_LANES, may_end)]
        per_word = reader.per_word // 2
        totals = [self._zeros() for _ in self.sums] if reader.is_late else self.sums
        for n in range(_WORDS):
            right = reader.like_pairs(k, x[n * per_word : (n + 1) * per_word])
            left = [
                reader.pairs(k, build.extract(words, n), term) for words, term in zip(stage.words, terms, strict=True)
            ]
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

    def _finish(self, epilogue: Callable[[Expr, Expr, Expr], Expr]) -> None:
        """Add the sums of the warps, and store what the epilogue makes of them."""
        k, tiling, c = self.k, self.tiling, self.c
        parts = k.array("parts", dtypes.f32, tiling.warps, MAX_ROWS, tiling.columns, space="shared")
        for tile, sums in enumerate(self.sums):
            for n in range(4):
                row, column = self.sharer * 2 + n % 2, self.group + (tile * MMA_COLUMNS + n // 2 * 8)
                k.store(parts, (self.warp, row, column), build.load(sums, n))
        k.emit(barrier())
        count = self.rows * tiling.columns
        with k.for_range("item", count - self.thread, start=self.thread, step=tiling.threads) as item:
            row, column = k.let("row", item // tiling.columns), k.let("column", item % tiling.columns)
            with k.if_(self.first + column < c.columns):
                total = k.let("total", build.load(parts, 0, row, column))
                for warp in range(1, tiling.warps):
                    k.assign(total, total + build.load(parts, warp, row, column))
                value = epilogue(total, row, self.first + column)
                k.store(c.pointer, c.row_stride * row + (self.first + column), value)


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
