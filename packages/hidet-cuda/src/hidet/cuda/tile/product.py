"""Products of tiles: `ldmatrix` and `mma.sync`.

An instruction multiplies 32 bytes along k. `ldmatrix` gives a lane four bytes of row lane / 4 of each 8 x 16 byte
matrix, which is how `mma.sync` takes operands whose k is the fast axis; transposed, of 2-byte elements, the others.
f32 is rounded to tf32 in registers; where its k is the slow axis, lanes read element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.cuda.intrinsics import INTRINSICS, intrinsic_call
from hidet.cuda.intrinsics.mma import matrix_name
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.gpu.tile.lower.elementwise import unroll
from hidet.gpu.tile.lower.fragment import Fragment, Threads
from hidet.gpu.tile.lower.machine import Operand
from hidet.gpu.tile.statements import Mma
from hidet.gpu.tile.tensors import STile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.intrinsic import MatrixShape
from hidet.ir.types import BufferType

_STEP_BYTES = 32
_WORDS = 4
# Where the words of an operand of 4-byte elements lie, along k and across it; those of b for two pieces of 8 columns.
_HALVES_A = ((0, 0), (0, 8), (4, 0), (4, 8))
_HALVES_B = ((0, 0), (4, 0), (0, 8), (4, 8))
_PACKS = {"float16": "cuda.pack_f16", "bfloat16": "cuda.pack_bf16"}


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """A lane's place in a shared tile, in a variable with this `value`; other pieces are constant steps away."""

    operand: Operand
    named: Var
    value: Expr

    def address(self, row: Expr, column: Expr) -> Expr:
        """Where the lane's element of the piece lies that begins at a row, a multiple of 8, and an even chunk."""
        return build.address(self.operand.buffer, self.operand.tile.layout.shifted(self.named, row, column))


def _lane(operand: Operand, row: Expr, column: Expr) -> Lane:
    """The row of a chunk that a lane names in the first piece of a product."""
    layout = operand.tile.layout
    return Lane(operand, build.size_var("named"), operand.stage * layout.size + layout.offset(row, column))


def multiply(node: Mma, accumulator: Fragment, a: Operand | Fragment, b: Operand, threads: Threads) -> s.Stmt:
    """Multiply and add. ScheduleError for types and shapes that the instructions do not have."""
    dtype, step = node.b.dtype, _STEP_BYTES // node.b.dtype.nbytes
    name = _instruction(node, step)
    k = node.b.columns if node.b_is_transposed else node.b.rows
    if k % step:
        raise ScheduleError(f"a product has {k} elements along k, expected a multiple of {step} of {dtype}")
    rows, columns = accumulator.extents[0], accumulator.extents[1]
    left = _words("words_a", rows)
    rounded = _rounded if dtype is dtypes.tf32 else _as_they_are
    at, piece = build.size_var("at"), build.size_var("piece")
    declared: list[s.Stmt] = [s.Declare(left)]
    if isinstance(a, Fragment):
        packed = packed_words(a, piece, at, dtype, threads)
        load_a = build.seq(s.Store(left, (piece, build.index(n)), word) for n, word in enumerate(packed))
    elif node.a_is_transposed and dtype.nbytes == 4:
        part = threads.warp_row * (node.accumulator.rows // threads.warps[0])
        load_a = _read_slowly(a, left, piece, at * step, part + piece * 16, _HALVES_A, threads)
    else:
        part = threads.warp_row * (node.accumulator.rows // threads.warps[0])
        lane_a, shift = _named(a, _lane_a(node, threads, step), part, along_rows=not node.a_is_transposed)
        declared.append(s.Declare(lane_a.named, lane_a.value))
        place = (shift + piece * 16, at * step)
        address = lane_a.address(*(place[::-1] if node.a_is_transposed else place))
        load_a = rounded(_load_matrix(left, piece, address, 4, node.a_is_transposed), left, piece, 4)
    part = threads.warp_column * (node.accumulator.columns // threads.warps[1])
    reads_slowly = not node.b_is_transposed and dtype.nbytes == 4
    if not reads_slowly:
        lane_b, start = _named(b, _lane_b(node, threads, step), part, along_rows=node.b_is_transposed)
        declared.append(s.Declare(lane_b.named, lane_b.value))

    def loaded(right: Var, pair: Expr, count: int) -> s.Stmt:
        if reads_slowly:
            halves = _HALVES_B[: 2 * count]
            return _read_slowly(b, right, build.index(0), at * step, part + pair * 16, halves, threads)
        place = (start + pair * 16, at * step)
        address = lane_b.address(*(place if node.b_is_transposed else place[::-1]))
        load = _load_matrix(right, build.index(0), address, 2 * count, not node.b_is_transposed)
        return rounded(load, right, build.index(0), 2 * count)

    def multiplied(pair: Expr, count: int) -> s.Stmt:
        """Products with `count` pieces of 8 columns, which are loaded at once."""
        right, other = _words("words_b", 1), build.size_var("other")
        product = s.Evaluate(
            intrinsic_call(
                name,
                build.address(accumulator.buffer, piece, pair * 2 + other, 0, 0),
                build.address(left, piece, 0),
                build.address(right, 0, other * 2),
            )
        )
        products = unroll(piece, rows, unroll(other, count, product))
        return build.seq([s.Declare(right), loaded(right, pair, count), products])

    pair = build.size_var("pair")
    inner = [unroll(piece, rows, load_a)]
    if columns > 1:
        inner.append(unroll(pair, columns // 2, multiplied(pair, 2)))
    if columns % 2:
        # Only lanes 0 to 15 name rows; what the others would name may lie outside of the tile.
        inner.append(multiplied(build.index(columns // 2), 1))
    return build.seq([*declared, unroll(at, k // step, build.seq(inner))])


def _instruction(node: Mma, step: int) -> str:
    dtype = node.b.dtype
    if isinstance(node.a, STile) and node.a.dtype != dtype:
        raise ScheduleError(f"a product of {node.a.dtype} and {dtype}: this lowering multiplies equal types")
    name = matrix_name("mma", MatrixShape(16, 8, step, dtype, dtype, node.accumulator.dtype))
    if name not in INTRINSICS:
        raise ScheduleError(f"there is no product of {dtype} added to {node.accumulator.dtype} in this lowering")
    if dtype.nbytes == 1 and (node.a_is_transposed or not node.b_is_transposed):
        raise ScheduleError(f"operands of {dtype} need k as their fast axis: single bytes are not transposed")
    return name


def _words(name: str, pieces: int) -> Var:
    return Var(name, BufferType(dtypes.u32, (build.index(pieces), build.index(_WORDS)), None, "register"))


def _load_matrix(words: Var, piece: Expr, address: Expr, count: int, transposed: bool) -> s.Stmt:
    name = f"cuda.load_matrix_x{count}{'_transposed' if transposed else ''}"
    return s.Evaluate(intrinsic_call(name, build.address(words, piece, 0), address))


def _as_they_are(load: s.Stmt, words: Var, piece: Expr, count: int) -> s.Stmt:
    return load


def _rounded(load: s.Stmt, words: Var, piece: Expr, count: int) -> s.Stmt:
    """A load of f32, and the rounding of the `count` words it gives."""
    stmts = [load]
    for word in range(count):
        place = (piece, build.index(word))
        value = Bitcast(build.load(words, *place), dtypes.f32)
        stmts.append(s.Store(words, place, intrinsic_call("cuda.round_tf32", value)))
    return build.seq(stmts)


def _read_slowly(
    operand: Operand,
    words: Var,
    piece: Expr,
    first_k: Expr,
    first: Expr,
    halves: Sequence[tuple[int, int]],
    threads: Threads,
) -> s.Stmt:
    """Read and round a lane's words of a piece whose rows are k: element (lane % 4, lane / 4) of an 8 x 8 square, and
    those `halves` (along k, across) further on."""
    layout, stmts = operand.tile.layout, list[s.Stmt]()
    for word, (along, across) in enumerate(halves):
        row, column = first_k + (threads.lane % 4 + along), first + (threads.lane // 4 + across)
        value = build.load(operand.buffer, operand.stage * layout.size + layout.offset(row, column))
        stmts.append(s.Store(words, (piece, build.index(word)), intrinsic_call("cuda.round_tf32", value)))
    return build.seq(stmts)


def _named(operand: Operand, lane: tuple[Expr, Expr], part: Expr, *, along_rows: bool) -> tuple[Lane, Expr]:
    """What a lane names in its warp's part of an operand, and how far pieces are shifted by that part.

    Rows are part of the place; columns are not, because they are swizzled.
    """
    row, column = lane
    if along_rows:
        return _lane(operand, part + row, column), build.index(0)
    return _lane(operand, row, column), part


def _lane_a(node: Mma, threads: Threads, step: int) -> tuple[Expr, Expr]:
    """What a lane names: rows 0 to 7 and 8 to 15 of the first 16 bytes along k, then of the next 16."""
    lane = threads.lane
    if not node.a_is_transposed:
        return lane % 16, lane // 16 * (step // 2)
    return lane // 16 * 8 + lane % 8, lane // 8 % 2 * 8


def _lane_b(node: Mma, threads: Threads, step: int) -> tuple[Expr, Expr]:
    """What a lane names: both halves of 32 bytes along k of 8 columns, then of the next 8."""
    lane = threads.lane
    if node.b_is_transposed:
        return lane // 16 * 8 + lane % 8, lane // 8 % 2 * (step // 2)
    return lane // 8 % 2 * 8 + lane % 8, lane // 16 * 8


def packed_words(a: Fragment, piece: Expr, at: Expr, dtype: DType, threads: Threads) -> list[Expr]:
    """Results of a product as the left operand of the next in step `at` along k, where two pieces of 8 columns are one.

    ScheduleError for what cannot be multiplied from registers.
    """
    pack = _PACKS.get(dtype.name)
    if pack is None or a.tile.dtype is not dtypes.f32 or threads.warps[1] != 1:
        raise ScheduleError(
            f"{a.tile.name} of {a.tile.dtype} over {threads.warps[1]} warps along its columns cannot be multiplied "
            f"with {dtype} from registers",
            hint="give f32, 2-byte other operands, and warps along the rows only",
        )
    words: list[Expr] = []
    for word in range(_WORDS):
        column, half = at * 2 + word // 2, build.index(word % 2)
        pair = [build.load(a.buffer, *a.at(piece, column, half, build.index(i))) for i in range(2)]
        words.append(intrinsic_call(pack, *pair))
    return words
