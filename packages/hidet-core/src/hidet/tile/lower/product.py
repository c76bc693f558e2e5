"""Products of tiles: `ldmatrix` and `mma.sync`.

An instruction multiplies 32 bytes along k. `ldmatrix` gives a lane four bytes of row lane / 4 of each 8 x 16 byte
matrix, which is how `mma.sync` takes operands whose k is the fast axis; transposed, of 2-byte elements, the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.intrinsics import INTRINSICS
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.intrinsics.mma import matrix_name
from hidet.ir.intrinsics.signature import MatrixShape
from hidet.ir.types import BufferType
from hidet.tile.lower.fragment import Fragment, Threads
from hidet.tile.statements import Mma
from hidet.tile.tensors import STile

_STEP_BYTES = 32
_WORDS = 4
_PACKS = {"float16": "cuda.pack_f16", "bfloat16": "cuda.pack_bf16"}


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A shared tile in a kernel: its buffer, and the stage that is read."""

    tile: STile
    buffer: Var
    stage: Expr

    def address(self, row: Expr, column: Expr) -> Expr:
        """Where an element lies."""
        layout = self.tile.layout
        return build.address(self.buffer, self.stage * layout.size + layout.offset(row, column))


def multiply(node: Mma, accumulator: Fragment, a: Operand | Fragment, b: Operand, threads: Threads) -> s.Stmt:
    """Multiply and add. ScheduleError for types and shapes that the instructions do not have."""
    dtype, step = node.b.dtype, _STEP_BYTES // node.b.dtype.nbytes
    name = _instruction(node, step)
    k = node.b.columns if node.b_is_transposed else node.b.rows
    if k % step:
        raise ScheduleError(f"a product has {k} elements along k, expected a multiple of {step} of {dtype}")
    rows, columns = accumulator.extents[0], accumulator.extents[1]
    left, right = _words("words_a", rows), _words("words_b", -(-columns // 2))
    at = build.size_var("at")
    piece, other = build.size_var("piece"), build.size_var("other")
    if isinstance(a, Fragment):
        load_a = _pack(a, left, piece, at, dtype, threads)
    else:
        row, column = _place_a(node, threads, piece, at, step)
        load_a = _load_matrix(left, piece, a.address(row, column), 4, node.a_is_transposed)
    load_b = list(_load_b(node, b, right, columns, at, step, threads))
    product = s.Evaluate(
        intrinsic_call(
            name,
            build.address(accumulator.buffer, piece, other, 0, 0),
            build.address(left, piece, 0),
            build.address(right, other // 2, other % 2 * 2),
        )
    )
    inner = [_unrolled(piece, rows, load_a), *load_b, _unrolled(piece, rows, _unrolled(other, columns, product))]
    return build.seq([s.Declare(left), s.Declare(right), _unrolled(at, k // step, build.seq(inner))])


def _instruction(node: Mma, step: int) -> str:
    dtype = node.b.dtype
    if isinstance(node.a, STile) and node.a.dtype != dtype:
        raise ScheduleError(f"a product of {node.a.dtype} and {dtype}: this lowering multiplies equal types")
    name = matrix_name("mma", MatrixShape(16, 8, step, dtype, dtype, node.accumulator.dtype))
    if name not in INTRINSICS or dtype.nbytes > 2:
        raise ScheduleError(f"there is no product of {dtype} added to {node.accumulator.dtype} in this lowering")
    if dtype.nbytes != 2 and (node.a_is_transposed or not node.b_is_transposed):
        raise ScheduleError(f"operands of {dtype} need k as their fast axis: only 2-byte elements are transposed")
    return name


def _words(name: str, pieces: int) -> Var:
    return Var(name, BufferType(dtypes.u32, (build.index(pieces), build.index(_WORDS)), None, "register"))


def _unrolled(index: Var, extent: int, body: s.Stmt) -> s.Stmt:
    return s.For(index, build.index(0), build.index(extent), body, kind="unroll")


def _load_matrix(words: Var, piece: Expr, address: Expr, count: int, transposed: bool) -> s.Stmt:
    name = f"cuda.load_matrix_x{count}{'_transposed' if transposed else ''}"
    return s.Evaluate(intrinsic_call(name, build.address(words, piece, 0), address))


def _place_a(node: Mma, threads: Threads, piece: Expr, at: Expr, step: int) -> tuple[Expr, Expr]:
    """What a lane names: rows 0 to 7 and 8 to 15 of the first 16 bytes along k, then of the next 16."""
    lane, part = threads.lane, node.accumulator.rows // threads.warps[0]
    first = threads.warp_row * part + piece * 16
    if not node.a_is_transposed:
        return first + lane % 16, at * step + lane // 16 * (step // 2)
    return at * step + lane // 16 * 8 + lane % 8, first + lane // 8 % 2 * 8


def _place_b(node: Mma, threads: Threads, pair: Expr, at: Expr, step: int) -> tuple[Expr, Expr]:
    """What a lane names: both halves of 32 bytes along k of 8 columns, then of the next 8."""
    lane, part = threads.lane, node.accumulator.columns // threads.warps[1]
    first = threads.warp_column * part + pair * 16
    if node.b_is_transposed:
        return first + lane // 16 * 8 + lane % 8, at * step + lane // 8 % 2 * (step // 2)
    return at * step + lane // 8 % 2 * 8 + lane % 8, first + lane // 16 * 8


def _load_b(node: Mma, b: Operand, words: Var, columns: int, at: Expr, step: int, threads: Threads) -> Iterator[s.Stmt]:
    """Two pieces of 8 columns at a time, and the last one alone where their number is odd."""
    if columns > 1:
        pair = build.size_var("pair")
        row, column = _place_b(node, threads, pair, at, step)
        load = _load_matrix(words, pair, b.address(row, column), 4, not node.b_is_transposed)
        yield _unrolled(pair, columns // 2, load)
    if columns % 2:
        last = build.index(columns // 2)
        # Only lanes 0 to 15 name rows; what the others would name may lie outside of the tile.
        row, column = _place_b(node, threads, last, at, step)
        yield _load_matrix(words, last, b.address(row, column), 2, not node.b_is_transposed)


def _pack(a: Fragment, words: Var, piece: Expr, at: Expr, dtype: DType, threads: Threads) -> s.Stmt:
    """Results of a product as the left operand of the next: two pieces of 8 columns are one of 16 along k."""
    pack = _PACKS.get(dtype.name)
    if pack is None or a.tile.dtype is not dtypes.f32 or threads.warps[1] != 1:
        raise ScheduleError(
            f"{a.tile.name} of {a.tile.dtype} over {threads.warps[1]} warps along its columns cannot be multiplied "
            f"with {dtype} from registers",
            hint="give f32, 2-byte other operands, and warps along the rows only",
        )
    stores = []
    for word in range(_WORDS):
        column, half = at * 2 + word // 2, build.index(word % 2)
        pair = [build.load(a.buffer, *a.at(piece, column, half, build.index(i))) for i in range(2)]
        stores.append(s.Store(words, (piece, build.index(word)), intrinsic_call(pack, *pair)))
    return build.seq(stores)
