"""Products of tiles by warp groups: `wgmma`, of sm_90a.

Four warps multiply 64 rows, in shared memory or in registers, with up to 256 columns in shared memory, where tiles
already lie as the instruction's swizzles want them (PTX ISA: "Matrix Descriptor", "Shared Memory Layout" of wgmma).
Their results are spread as those of `mma.sync` with 16 rows a warp.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hidet import dtypes
from hidet.cuda.intrinsics import INTRINSICS, intrinsic_call
from hidet.cuda.intrinsics.mma import matrix_name
from hidet.cuda.tile.product import packed_words
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.lower.fragment import Fragment, Threads
from hidet.gpu.tile.lower.machine import Operand
from hidet.gpu.tile.statements import Mma
from hidet.gpu.tile.tensors import STile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.intrinsic import MatrixShape
from hidet.ir.types import BufferType

GROUP_WARPS = 4
"""Warps that multiply together."""
_GROUP_ROWS = 64
_FIRST_BARRIER = 2
"""Of warp groups; others of a block are for all its threads, or all that multiply."""
_STEP_BYTES = 32
_WORDS = 4
"""Of the left operand that a thread has of a step."""
# Bytes of a swizzled row -> number of the swizzle in a descriptor.
_SWIZZLES = {128: 1, 64: 2, 32: 3}


def fits_warp_groups(node: Mma, warps: tuple[int, int]) -> bool:
    """Whether a product is one of warp groups: 64 rows each, all columns, the right operand in shared memory."""
    if node.accumulator.is_transposed:
        return fits_warp_groups(node.upright, warps[::-1])
    if warps[1] != 1 or warps[0] % GROUP_WARPS or _name(node) not in INTRINSICS:
        return False
    if node.accumulator.rows != warps[0] // GROUP_WARPS * _GROUP_ROWS:
        return False
    if isinstance(node.a, STile):
        of_a = _fits(node.a, _GROUP_ROWS if node.a_is_transposed else None)
    else:
        of_a = node.a.dtype is dtypes.f32 and node.b.dtype.nbytes == 2
    of_b = _fits(node.b, None) and (node.b_is_transposed or node.b.dtype.nbytes == 2)
    k = node.b.columns if node.b_is_transposed else node.b.rows
    return of_a and of_b and k * node.b.dtype.nbytes % _STEP_BYTES == 0


def _fits(tile: STile, across: int | None) -> bool:
    """Whether a tile lies as a descriptor can say. across: rows or columns of the product that one instruction takes
    when they, not k, are the tile's fast axis; None when k is."""
    layout = tile.layout
    width = layout.panel_chunks * 16
    if not layout.is_swizzled or width not in _SWIZZLES or tile.rows % 8:
        return False
    return across is None or (tile.dtype.nbytes == 2 and (layout.panels == 1 or across * 2 % width == 0))


def _name(node: Mma) -> str:
    dtype, out = node.b.dtype, node.accumulator.dtype
    step = _STEP_BYTES // dtype.nbytes
    kind = "wgmma" if isinstance(node.a, STile) else "wgmma_registers"
    return matrix_name(kind, MatrixShape(64, node.accumulator.columns, step, dtype, dtype, out))


def multiply_in_groups(
    node: Mma,
    accumulator: Fragment,
    operands: tuple[Operand | Fragment, Operand],
    threads: Threads,
    *,
    is_added: bool = True,
) -> s.Stmt:
    """The products of all steps along k, waited for. is_added: to what the accumulator holds; they replace it else."""
    a, b = operands
    if isinstance(a, Fragment):
        start = _start_from_registers(node, accumulator, a, b, threads, is_added)
    else:
        start = start_in_groups(node, accumulator, (a, b), threads, is_added=is_added)
    return build.seq([start, finish_groups(accumulator)])


def finish_groups(accumulator: Fragment, unfinished: int = 0) -> s.Stmt:
    """Wait for all products but the `unfinished` ones started last, so that their sum may be used."""
    tile = accumulator.tile.upright
    results = f"cuda.wgmma_results.n{tile.columns}.{tile.dtype.short}"
    held = s.Evaluate(intrinsic_call(results, build.address(accumulator.buffer, 0, 0, 0, 0)))
    return build.seq([wait_for_groups(unfinished), held])


def finished_loop(extent: Expr, loop: s.Stmt, sums: Iterable[Fragment], *after: s.Stmt) -> s.Stmt:
    """A loop that leaves products unfinished, what waits for them, and statements after that; nothing where the loop's
    extent is 0.

    Were the ways with and without products to join before the wait, the compiler would move sums while they are added
    to, and run all products one after the other (C7514).
    """
    return s.If(extent > 0, build.seq([loop, *map(finish_groups, sums), *after]))


def meet_in_group(threads: Threads) -> s.Stmt:
    """The warps of each warp group meet, at a barrier of its own."""
    count = GROUP_WARPS * WARP
    return _by_group(threads, [_barrier("sync", _FIRST_BARRIER + group, count) for group in range(_groups(threads))])


def begin_ping_pong(threads: Threads) -> s.Stmt:
    """The first warp group may start: what the last one says, once, before any `ping_pong`."""
    last = _groups(threads) - 1
    return s.If(build.equal(_group(threads), last), _order("arrive", 0, threads))


def ping_pong(threads: Threads, started: s.Stmt) -> s.Stmt:
    """Warp groups start products one behind the other, round after round, so that one multiplies while others compute
    on what they have multiplied (Shah et al., "FlashAttention-3", 2024).

    Each has a barrier, at which it waits for the group before it. All groups come here equally often.
    """
    groups = _groups(threads)
    own = [_order("sync", group, threads) for group in range(groups)]
    following = [_order("arrive", (group + 1) % groups, threads) for group in range(groups)]
    return build.seq([_by_group(threads, own), started, _by_group(threads, following)])


def _order(verb: str, group: int, threads: Threads) -> s.Stmt:
    """At the barrier where a group waits for the one before it."""
    return _barrier(verb, _FIRST_BARRIER + _groups(threads) + group, 2 * GROUP_WARPS * WARP)


def _barrier(verb: str, number: int, count: int) -> s.Stmt:
    return s.Evaluate(intrinsic_call(f"cuda.barrier_{verb}", number, count))


def _groups(threads: Threads) -> int:
    return threads.warps[0] * threads.warps[1] // GROUP_WARPS


def _group(threads: Threads) -> Expr:
    """The number of a thread's warp group."""
    return (threads.warp_row * threads.warps[1] + threads.warp_column) // GROUP_WARPS


def _by_group(threads: Threads, stmts: Sequence[s.Stmt]) -> s.Stmt:
    """For each warp group a statement of its own."""
    *others, chosen = stmts
    for group, own in reversed(list(enumerate(others))):
        chosen = s.If(build.equal(_group(threads), group), own, chosen)
    return chosen


def wait_for_groups(count: int) -> s.Stmt:
    """Wait until at most `count` of the products started last are unfinished."""
    return s.Evaluate(intrinsic_call("cuda.wgmma_wait", count))


def start_in_groups(
    node: Mma,
    accumulator: Fragment,
    operands: tuple[Operand, Operand],
    threads: Threads,
    *,
    is_added: bool = True,
) -> s.Stmt:
    """Start the products of all steps along k. Neither operands nor accumulator may be touched before the wait."""
    a, b = operands
    if node.accumulator.is_transposed:
        a, b = b, a
    threads, node = threads.upright(node.accumulator), node.upright
    nbytes = node.b.dtype.nbytes
    k = node.b.columns if node.b_is_transposed else node.b.rows
    at = build.size_var("at")
    group = threads.warp_row // GROUP_WARPS
    start_a, start_b = _descriptor("operand_a", a), _descriptor("operand_b", b)
    row_bytes = a.tile.layout.panel_chunks * 16
    if node.a_is_transposed:
        far_a = _step_across(a, at) + _across(a, group * _GROUP_ROWS)
    else:
        far_a = _step_along(a, at) + group * (_GROUP_ROWS * row_bytes)
    far_b = _step_along(b, at) if node.b_is_transposed else _step_across(b, at)
    arguments: list[Expr | bool | int] = [
        build.address(accumulator.buffer, 0, 0, 0, 0),
        _moved(start_a[0], far_a),
        _moved(start_b[0], far_b),
        _is_added(is_added, at),
    ]
    if nbytes == 2:
        arguments += [int(node.a_is_transposed), int(not node.b_is_transposed)]
    product = s.Evaluate(intrinsic_call(_name(node), *arguments))
    steps = s.For(at, build.index(0), build.index(k * nbytes // _STEP_BYTES), product, kind="unroll")
    declared = [s.Declare(var, value) for var, value in (start_a, start_b)]
    fence, commit = (s.Evaluate(intrinsic_call(f"cuda.wgmma_{verb}")) for verb in ("fence", "commit"))
    return build.seq([*declared, fence, steps, commit])


def start_together(
    products: tuple[Mma, Mma],
    sums: tuple[Fragment, Fragment],
    of_first: tuple[Operand, Operand],
    of_second: tuple[Fragment, Operand],
    threads: Threads,
) -> s.Stmt:
    """Start two products, in turn with the other warp groups. The first one, which ends first, replaces what the second
    one reads of registers."""
    start = start_in_groups(products[0], sums[0], of_first, threads, is_added=False)
    return _start_from_registers(products[1], sums[1], *of_second, threads, True, start)


def _start_from_registers(
    node: Mma,
    accumulator: Fragment,
    a: Fragment,
    b: Operand,
    threads: Threads,
    is_added: bool,
    between: s.Stmt | None = None,
) -> s.Stmt:
    """Start the products of all steps along k, the left operand of which is packed before. between: what is started
    then, in place of the fence; both in turn with the other warp groups."""
    steps = (node.b.columns if node.b_is_transposed else node.b.rows) * node.b.dtype.nbytes // _STEP_BYTES
    at = build.size_var("at")
    words = Var("words", BufferType(dtypes.u32, (build.index(steps), build.index(_WORDS)), None, "register"))
    packed = packed_words(a, build.index(0), at, node.b.dtype, threads)
    pack = build.seq(s.Store(words, (at, build.index(n)), word) for n, word in enumerate(packed))
    start_b = _descriptor("operand_b", b)
    far_b = _step_along(b, at) if node.b_is_transposed else _step_across(b, at)
    product = s.Evaluate(
        intrinsic_call(
            _name(node),
            build.address(accumulator.buffer, 0, 0, 0, 0),
            build.address(words, at, 0),
            _moved(start_b[0], far_b),
            _is_added(is_added, at),
            int(not node.b_is_transposed),
        )
    )
    fence, commit = (s.Evaluate(intrinsic_call(f"cuda.wgmma_{verb}")) for verb in ("fence", "commit"))
    loops = [s.For(at, build.index(0), build.index(steps), body, kind="unroll") for body in (pack, product)]
    started = build.seq([between or fence, loops[1], commit])
    return build.seq(
        [s.Declare(words), s.Declare(*start_b), loops[0], started if between is None else ping_pong(threads, started)]
    )


def _is_added(is_added: bool, at: Var) -> Expr:
    """Whether step `at` adds to what is there."""
    return Const(True, dtypes.boolean) if is_added else at > 0


def _descriptor(name: str, operand: Operand) -> tuple[Var, Expr]:
    """A variable for the descriptor of the start of a tile, and its value."""
    layout = operand.tile.layout
    width = layout.panel_chunks * 16
    leading, stride = layout.rows * width, 8 * width
    fixed = leading // 16 << 16 | stride // 16 << 32 | _SWIZZLES[width] << 62
    start = build.address(operand.buffer, operand.stage * layout.size)
    place = intrinsic_call("cuda.shared_address", start)
    address = build.binary("shr", build.binary("and", place, 0x3FFFF), 4)
    return Var(name, dtypes.u64), build.binary("or", build.cast(address, dtypes.u64), Const(fixed, dtypes.u64))


def _moved(start: Var, nbytes: Expr) -> Expr:
    """The descriptor of a place that many bytes further."""
    return build.binary("add", start, build.cast(nbytes // 16, dtypes.u64))


def _step_along(operand: Operand, at: Expr) -> Expr:
    """Bytes to step `at` of 32 bytes along rows, whose panels lie behind each other."""
    layout = operand.tile.layout
    width = layout.panel_chunks * 16
    per_panel = width // _STEP_BYTES
    return at // per_panel * (layout.rows * width) + at % per_panel * _STEP_BYTES


def _step_across(operand: Operand, at: Expr) -> Expr:
    """Bytes to step `at` of 16 rows."""
    return at * (16 * operand.tile.layout.panel_chunks * 16)


def _across(operand: Operand, column: Expr) -> Expr:
    """Bytes to a column that starts a panel, or to one inside the only panel."""
    layout = operand.tile.layout
    width = layout.panel_chunks * 16
    if layout.panels == 1:
        return column * 2
    return column * 2 // width * (layout.rows * width)
