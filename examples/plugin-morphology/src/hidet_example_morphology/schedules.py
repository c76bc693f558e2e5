"""Two schedules of `dilate`: one for every GPU, and one for those of NVIDIA that takes four bytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hidet import dtypes
from hidet.compute.definition import MAX
from hidet.context import CompileContext
from hidet.dims import Dim, product, prove_equal
from hidet.dtypes import DType
from hidet.gpu.intrinsics import intrinsic_call
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.intrinsic_call import call_intrinsic
from hidet.ir.stmt import Launch
from hidet.ir.types import PointerType, VectorType
from hidet.schedule.routines.site import unflatten
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Constraint, Knob, Space
from hidet.schedule.task import Task
from hidet.target import gpu_target
from hidet_example_morphology.intrinsics import MAX_BYTES

BYTES = VectorType(dtypes.u8, 4)


class DilateRule(ScheduleRule[None, int]):
    """A thread a pixel. What may be chosen is how many threads a block has.

    Sizes and strides are arguments, so that one kernel of a window serves images of every size and layout.
    """

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """Any numbers, with nothing fused before or after."""
        return Match(task) if task.is_plain else None

    def space(self, match: Match[None], ctx: CompileContext) -> Space[int]:
        """Multiples of a warp."""
        warp, most = gpu_target(ctx.target).warp_size, gpu_target(ctx.target).block_threads
        fits = Constraint[int](f"a block has at most {most} threads", lambda threads: threads <= most)
        return Space((Knob("threads", (warp, 4 * warp, 8 * warp), "threads of a block"),), int, (fits,))

    def default(self, match: Match[None], ctx: CompileContext) -> int:
        """Enough warps to hide the latency of loads, few enough for several blocks a multiprocessor."""
        return 4 * gpu_target(ctx.target).warp_size

    def build(self, match: Match[None], params: int, ctx: CompileContext) -> Program:
        """A kernel of the window's size, over all pixels."""
        (image,), (result,) = match.task.inputs, match.task.outputs
        reach = _reach(match.task)
        sizes = [build.size_var(name) for name in ("n", "c", "h", "w")]
        height, width = sizes[2:]
        reads = [build.size_var(f"image_stride{axis}") for axis in range(4)]
        writes = [build.size_var(f"result_stride{axis}") for axis in range(4)]
        dtype = image.type.dtype

        def pixel(k: IRBuilder, item: Expr, source: Var, target: Var) -> None:
            place = unflatten(item, sizes)
            lead = place[:2]
            y, x = k.let("y", place[2]), k.let("x", place[3])
            greatest = k.let("greatest", MAX.identity((dtype,))[0])
            rows = k.for_range("row", 2 * reach + 1, start=y - reach)
            columns = k.for_range("column", 2 * reach + 1, start=x - reach)
            with rows as row, k.if_(_is_below(row, height)), columns as column, k.if_(_is_below(column, width)):
                value = k.let("value", build.load(source, build.flatten((*lead, row, column), reads)))
                k.assign(greatest, build.maximum(greatest, value))
            k.store(target, build.flatten((*lead, y, x), writes), greatest)

        arguments = (*result.type.shape, *image.type.element_strides, *result.type.element_strides)
        variables = (*sizes, *reads, *writes)
        return _program(dtype, product(result.type.shape), variables, arguments, params, pixel)


class DilateBytesRule(ScheduleRule[None, int]):
    """Four neighbours of u8 at a time: words are shifted against each other, and an instruction of NVIDIA's compares
    four bytes."""

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """Row-major images whose rows are whole words, and windows that reach no farther than the words beside."""
        (image,), (result,) = task.inputs, task.outputs
        is_mine = task.is_plain and image.type.dtype is dtypes.u8 and image.is_aligned and _reach(task) <= 4
        is_mine = is_mine and image.type.is_contiguous and result.type.is_contiguous
        width = image.type.shape[3]
        return Match(task) if is_mine and prove_equal(width % 4, 0) else None

    def space(self, match: Match[None], ctx: CompileContext) -> Space[int]:
        """Threads of a block."""
        return DilateRule().space(match, ctx)

    def default(self, match: Match[None], ctx: CompileContext) -> int:
        """As for single pixels."""
        return DilateRule().default(match, ctx)

    def build(self, match: Match[None], params: int, ctx: CompileContext) -> Program:
        """A kernel of the window's size, over all words."""
        shape = match.task.outputs[0].type.shape
        reach = _reach(match.task)
        height, width = build.size_var("h"), build.size_var("w")

        def word(k: IRBuilder, item: Expr, source: Var, target: Var) -> None:
            _, y, x = unflatten(item, (build.index(1), height, width // 4))
            start = k.let("start", item // (height * (width // 4)) * (height * width))
            y, x = k.let("y", y), k.let("x", x * 4)
            greatest = k.let("greatest", build.const(0, dtypes.u32))
            with k.for_range("row", 2 * reach + 1, start=y - reach) as row, k.if_(_is_below(row, height)):
                words = [k.let(f"word{number}", build.const(0, dtypes.u32)) for number in range(3)]
                for number, loaded in enumerate(words):
                    column = x + 4 * (number - 1)
                    with k.if_(_is_below(column, width)):
                        found = build.load(source, start + row * width + column, lanes=4)
                        k.assign(loaded, Bitcast(found, dtypes.u32))
                for shift in range(-reach, reach + 1):
                    k.assign(greatest, call_intrinsic(MAX_BYTES, greatest, _shifted(words, shift)))
            k.store(target, start + y * width + x, Bitcast(greatest, BYTES))

        return _program(dtypes.u8, product(shape) // 4, (height, width), shape[2:], params, word)


def _reach(task: Task) -> int:
    assert task.anchor is not None
    size: int = task.anchor.attrs["size"]
    return size // 2


def _is_below(place: Expr, extent: Expr) -> Expr:
    return build.logical_and(build.binary("ge", place, 0), build.binary("lt", place, extent))


def _shifted(words: Sequence[Expr], shift: int) -> Expr:
    """The four bytes that begin `shift` bytes after the middle one of three words, the first byte lowest."""
    if shift % 4 == 0:
        return words[1 + shift // 4]
    low, high = (words[0], words[1]) if shift < 0 else (words[1], words[2])
    bits = 8 * (shift % 4)
    right = build.binary("shr", low, build.const(bits, dtypes.u32))
    return build.binary("or", right, build.binary("shl", high, build.const(32 - bits, dtypes.u32)))


def _program(
    dtype: DType,
    count: Dim,
    variables: Sequence[Var],
    arguments: Sequence[Dim],
    threads: int,
    body: Callable[[IRBuilder, Expr, Var, Var], None],
) -> Program:
    """A kernel that runs `body` for each of `count` items, a thread an item. variables: sizes that it names."""
    pointers = tuple(Var(name, PointerType(dtype)) for name in ("image", "result"))
    items = build.size_var("items")
    k = IRBuilder()
    block, thread = (intrinsic_call(f"gpu.{name}_idx.x") for name in ("block", "thread"))
    item = k.let("item", build.cast(block, dtypes.i64) * threads + build.cast(thread, dtypes.i64))
    with k.if_(build.binary("lt", item, items)):
        body(k, item, *pointers)
    kernel = Function("dilate", (*pointers, items, *variables), k.body, kind="kernel")
    launch = Launch(kernel.name, ((items + threads - 1) // threads,), kernel.params, block=(build.index(threads),))
    entry = Function("entry", kernel.params, launch, kind="host")
    return Program(Module((kernel, entry), "entry"), arguments=(count, *arguments))
