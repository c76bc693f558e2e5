"""A grid of operators with what surrounds them, element types, shapes and layouts: what schedules for GPUs are run on.

A target's tests compute every row at its small size, and compile it at its large one. A new schedule is a new row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.dtypes import DType
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph, Value
from hidet.graph.types import TensorType
from hidet.plugins.host import load_registry

TOLERANCE = {"f16": 2e-2, "bf16": 1e-1, "f32": 2e-4, "f64": 1e-12, "i64": 0.0, "i8": 0.0}

FLOATS = ("f16", "bf16", "f32")


class Builder:
    """Makes inputs and nodes of one element type."""

    def __init__(self, dtype: DType) -> None:
        self.graph = GraphBuilder(load_registry().operators)
        self.dtype = dtype

    def __call__(self, *shape: int, last: bool = False) -> Value:
        """An input. last: its channels, dim 1, lie next to each other."""
        strides = _channels_last(shape) if last else None
        return self.graph.input(TensorType(self.dtype, shape, strides))

    def index(self, count: int) -> Value:
        """An input of positions."""
        return self.graph.input(TensorType(dtypes.i64, (count,)))

    def op(self, name: str, *inputs: Value | None, **attributes: Any) -> Value:
        """A node."""
        return self.graph.emit(name, *inputs, **attributes)


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    _, channels, *space = shape
    steps = [channels * int(np.prod(space[axis + 1 :])) for axis in range(len(space))]
    return (channels * int(np.prod(space)), 1, *steps)


@dataclass(frozen=True)
class Row:
    """make: the result, from a builder and sizes. is_nest: the fallback nest takes it, or a part."""

    make: Callable[..., Value]
    small: tuple[int, ...]
    large: tuple[int, ...]
    is_nest: bool = False
    dtypes: tuple[str, ...] = FLOATS


def matmul(new: Builder, m: int, n: int, k: int) -> Value:
    return new.op("matmul", new(m, k), new(k, n))


def linear(new: Builder, m: int, n: int, k: int) -> Value:
    product = new.op("linear", new(2, m, k), new(n, k), new(n))
    return new.op("relu", new.op("add", product, new(2, m, n)))


def batched(new: Builder, b: int, m: int, n: int, k: int) -> Value:
    return new.op("matmul", new(b, m, k), new(b, n, k), trans_b=True)


def row_product(new: Builder, n: int, k: int) -> Value:
    return new.op("linear", new(1, k), new(n, k), new(n))


def convolution(taps: int, last: bool, **attributes: int) -> Callable[..., Value]:
    def make(new: Builder, n: int, channels: int, side: int, filters: int) -> Value:
        groups = attributes.get("groups", 1)
        x, weight = new(n, channels, side, side, last=last), new(filters, channels // groups, taps, taps)
        return new.op("relu", new.op("conv", x, weight, new(filters), **{"padding": taps // 2, **attributes}))

    return make


def transposed_conv(new: Builder, n: int, channels: int, side: int, filters: int) -> Value:
    x, weight = new(n, channels, side, side, last=True), new(channels, filters, 4, 4)
    return new.op("relu", new.op("conv_transpose", x, weight, new(filters), stride=2, padding=1))


def depthwise(taps: int = 3, last: bool = True, **attributes: int) -> Callable[..., Value]:
    def make(new: Builder, n: int, channels: int, side: int) -> Value:
        x, weight = new(n, channels, side, side, last=last), new(channels, 1, taps, taps)
        conv = new.op("conv", x, weight, new(channels), padding=taps // 2, groups=channels, **attributes)
        return new.op("relu", conv)

    return make


def pooling(name: str, **attributes: Any) -> Callable[..., Value]:
    return lambda new, n, channels, side: new.op(name, new(n, channels, side, side, last=True), **attributes)


def attention(is_causal: bool) -> Callable[..., Value]:
    def make(new: Builder, b: int, heads: int, length: int, width: int) -> Value:
        return new.op("attention", *(new(b, heads, length, width) for _ in range(3)), is_causal=is_causal)

    return make


def grouped_queries(new: Builder, b: int, groups: int, length: int, width: int) -> Value:
    q = new(b, 4 * groups, length, width)
    return new.op("attention", q, new(b, groups, length, width), new(b, groups, length, width), enable_gqa=True)


def packed_attention(new: Builder, count: int, heads: int, length: int, width: int) -> Value:
    """Of sequences that are equally long."""
    ends = new.op("arange", stop=count * length + 1, step=length, dtype=dtypes.i32)
    tensors = [new(count * length, each, width) for each in (heads, heads // 2, heads // 2)]
    attrs = {"max_q": length, "max_k": length, "is_causal": True, "window": (length // 2, -1)}
    return new.op("varlen_attention", *tensors, ends, ends, **attrs)


def masked_attention(new: Builder, b: int, heads: int, length: int, width: int) -> Value:
    return new.op("attention", *(new(b, heads, length, width) for _ in range(3)), new(b, 1, length, length))


def along_one_axis(new: Builder, n: int, channels: int, length: int, filters: int) -> Value:
    return new.op("conv", new(n, channels, length), new(filters, channels, 3), new(filters), padding=1)


def upsampled(new: Builder, n: int, channels: int, side: int) -> Value:
    return new.op("interpolate", new(n, channels, side, side, last=True), size=[2 * side, 2 * side])


def norm(name: str, arguments: int = 2, **attributes: Any) -> Callable[..., Value]:
    def make(new: Builder, rows: int, columns: int) -> Value:
        return new.op(name, new(rows, columns), *(new(columns) for _ in range(arguments)), **attributes)

    return make


def group_norm(new: Builder, n: int, channels: int, side: int) -> Value:
    return new.op("group_norm", new(n, channels, side, side), new(channels), new(channels), groups=4)


def reduced(name: str, **attributes: Any) -> Callable[..., Value]:
    return lambda new, rows, columns: new.op(name, new(rows, columns), **attributes)


def ordered(name: str, **attributes: Any) -> Callable[..., Value]:
    def make(new: Builder, rows: int, columns: int) -> Value:
        return new.graph.emit_all(name, (new(rows, columns),), {"axis": 1, **attributes})[0]

    return make


def largest_and_place(new: Builder, rows: int, columns: int) -> Value:
    values, places = new.graph.emit_all("max_with_index", (new(rows, columns),), {"axis": 0})
    return new.op("add", new.op("cast", values, dtype=dtypes.f64), new.op("cast", places, dtype=dtypes.f64))


def chain(new: Builder, rows: int, columns: int) -> Value:
    x = new.op("mul", new.op("add", new(rows, columns), new(rows, columns)), new())
    return new.op("gelu", x)


def broadcast(new: Builder, rows: int, columns: int) -> Value:
    return new.op("add", new.op("mul", new(rows, columns), new(rows, 1)), new(columns))


def widened(new: Builder, rows: int, columns: int) -> Value:
    return new.op("exp", new.op("cast", new(rows, columns), dtype=dtypes.f32))


def transposed(new: Builder, rows: int, columns: int) -> Value:
    return new.op("copy", new.op("transpose", new(3, rows, columns), perm=[0, 2, 1]))


def joined(new: Builder, rows: int, columns: int) -> Value:
    return new.op("concat", new(rows, columns), new(rows, columns + 1), axis=1)


def padded(new: Builder, rows: int, columns: int) -> Value:
    return new.op(
        "pad", new.op("slice", new(rows, columns), starts=[1, 0], stops=[rows, columns]), pads=[(0, 2), (1, 0)]
    )


def looked_up(new: Builder, rows: int, columns: int) -> Value:
    return new.op("embedding", new(4, columns), new.index(rows))


def bags(by: str) -> Callable[..., Value]:
    def make(new: Builder, rows: int, columns: int) -> Value:
        ends = new.index(5), new.index(5)
        return new.op(
            "segment_reduce", new.op("embedding", new(4, columns), new.index(rows)), *ends, reduce_by=by, initial=0.5
        )

    return make


def reinterpreted(dtype: str) -> Callable[..., Value]:
    return lambda new, rows, columns: new.op("bitcast", new(rows, columns), dtype=getattr(dtypes, dtype))


def mantissas(new: Builder, rows: int, columns: int) -> Value:
    mantissa, exponent = new.graph.emit_all("frexp", (new(rows, columns),), {})
    return new.op("mul", mantissa, new.op("cast", exponent, dtype=new.dtype))


def special(name: str) -> Callable[..., Value]:
    """Of numbers between 0 and 1, where every function is finite."""
    return lambda new, rows, columns: new.op(name, new.op("sigmoid", new(rows, columns)))


def of_degrees(new: Builder, rows: int, columns: int) -> Value:
    x, n = new(rows, columns), new.op("cast", new.index(columns), dtype=new.dtype)
    total = new.op("chebyshev_polynomial_u", x, n)
    for name in ("hermite_polynomial_he", "legendre_polynomial_p"):
        total = new.op("add", total, new.op(name, x, n))
    zeta = new.op("zeta", new.op("add", n, new.op("add", n, new.op("exp", x))), new.op("exp", x))
    return new.op("add", total, new.op("nan_to_num", zeta, posinf=3.0))


GRID: dict[str, Row] = {
    "matmul": Row(matmul, (136, 136, 40), (1024, 2048, 1024)),
    "matmul of odd sizes": Row(matmul, (133, 131, 37), (333, 555, 777)),
    "matmul, long sums": Row(matmul, (16, 16, 640), (64, 64, 16384)),
    "linear": Row(linear, (72, 136, 40), (512, 3072, 768)),
    "batch of products": Row(batched, (2, 136, 72, 40), (96, 128, 128, 64)),
    "product with a row": Row(row_product, (7, 100), (4096, 4096)),
    "conv": Row(convolution(3, True), (1, 8, 6, 16), (8, 64, 56, 64)),
    "conv, channels first": Row(convolution(3, False), (1, 8, 5, 8), (8, 64, 56, 64)),
    "conv, strided": Row(convolution(3, True, stride=2), (1, 8, 7, 8), (8, 128, 56, 128)),
    "conv of one pixel": Row(convolution(1, True), (1, 16, 4, 8), (8, 256, 14, 1024)),
    "conv in groups": Row(convolution(3, True, groups=2), (1, 16, 4, 16), (4, 64, 28, 128)),
    "first conv": Row(convolution(7, False, stride=2, padding=3), (1, 3, 9, 8), (8, 3, 224, 64)),
    "transposed conv": Row(transposed_conv, (1, 8, 5, 8), (4, 256, 32, 128), dtypes=("f16", "f32")),
    "depthwise conv": Row(depthwise(), (1, 8, 6), (8, 96, 56)),
    "depthwise conv, channels first": Row(depthwise(last=False), (1, 3, 7), (8, 96, 56), dtypes=("f16",)),
    "depthwise conv, strided": Row(depthwise(5, stride=2), (1, 8, 7), (8, 96, 56), dtypes=("f16", "f32")),
    "depthwise conv of an odd number": Row(depthwise(dilation=2), (1, 3, 7), (8, 95, 56), dtypes=("f32",)),
    "depthwise conv of large filters": Row(depthwise(31), (1, 4, 6), (8, 96, 56), dtypes=("f16",)),
    "depthwise conv of 25 taps": Row(depthwise(5), (1, 8, 6), (32, 96, 56), dtypes=("f16", "f32")),
    "depthwise conv, few results": Row(depthwise(), (1, 8, 6), (1, 96, 14), dtypes=("f16",)),
    "largest of windows": Row(pooling("max_pool", kernel=[3, 3], stride=2, padding=1), (1, 8, 7), (8, 64, 112)),
    "mean of windows": Row(pooling("avg_pool", kernel=[2, 2]), (1, 8, 6), (8, 64, 56)),
    "mean of images": Row(pooling("adaptive_avg_pool", size=[1, 1]), (2, 8, 5), (8, 2048, 7)),
    "attention": Row(attention(False), (1, 2, 20, 16), (2, 12, 512, 64)),
    "causal attention": Row(attention(True), (1, 2, 20, 16), (2, 12, 1024, 128)),
    "attention of grouped queries": Row(grouped_queries, (1, 1, 20, 16), (1, 8, 512, 128), dtypes=("f16",)),
    "attention with a mask": Row(masked_attention, (1, 2, 20, 16), (2, 12, 512, 64), dtypes=("f16", "f32")),
    "attention of packed sequences": Row(packed_attention, (2, 2, 20, 16), (8, 12, 512, 64), dtypes=("f16", "f32")),
    "conv along one axis": Row(along_one_axis, (1, 8, 11, 8), (4, 256, 1024, 256), dtypes=("f16",)),
    "upsampled": Row(upsampled, (1, 8, 4), (4, 64, 56), dtypes=("f16", "f32")),
    "softmax": Row(reduced("softmax", axis=-1), (3, 70), (4096, 4096)),
    "log-softmax of columns": Row(reduced("log_softmax", axis=0), (70, 3), (512, 1024)),
    "layer norm": Row(norm("layer_norm"), (6, 96), (4096, 768)),
    "rms norm": Row(norm("rms_norm", 1), (6, 96), (4096, 4096)),
    "group norm": Row(group_norm, (2, 8, 8), (8, 128, 28)),
    "sum of rows": Row(reduced("sum", axes=[1]), (5, 200), (2048, 4096)),
    "sum of columns": Row(reduced("sum", axes=[0]), (200, 5), (4096, 2048)),
    "one sum": Row(reduced("mean"), (30, 30), (2048, 2048)),
    "variance": Row(reduced("var", axes=[1]), (5, 100), (1024, 1024), dtypes=("f32",)),
    "place of the largest": Row(reduced("argmax", axes=[1]), (5, 100), (1024, 50257)),
    # Blocks of 1024 threads have 64 registers each: numbers of two registers, and bytes of which a thread reads many.
    "largest of columns": Row(reduced("amax", axes=[0]), (200, 32), (4096, 4096), dtypes=("i8", "f64")),
    "places in long columns": Row(reduced("argmax", axes=[0]), (300, 3), (100_000, 7), dtypes=("i64", "f64")),
    "largest and its place": Row(largest_and_place, (70, 6), (64, 4096), dtypes=("i64", "f64")),
    "deviation of columns": Row(reduced("std", axes=[0]), (200, 5), (4096, 4096), dtypes=("f64",)),
    "softmax of columns": Row(reduced("softmax", axis=0), (70, 6), (64, 4096), dtypes=("f64",)),
    "log of summed powers": Row(reduced("logsumexp", axes=[0]), (70, 6), (64, 4096), dtypes=("f64", "f32")),
    "running sum": Row(reduced("cumsum", axis=1), (3, 40), (4096, 4096)),
    "running sum, in parts": Row(reduced("cumsum", axis=1), (1, 8200), (64, 128256), dtypes=("f32",)),
    "running sum of columns": Row(reduced("cumsum", axis=0), (70, 40), (4096, 512)),
    "best of rows": Row(ordered("topk", k=50, largest=True), (2, 3000), (4096, 4096), dtypes=("f16", "f32", "i64")),
    "best of long rows": Row(
        ordered("topk", k=600, largest=False), (1, 4900), (64, 128256), dtypes=("f32", "f64", "i8")
    ),
    "rows in order": Row(ordered("sort"), (2, 1100), (4096, 4096), dtypes=("f16", "f32")),
    "long rows in order": Row(ordered("sort", descending=True), (1, 4200), (64, 128256), dtypes=("bf16", "f64", "i8")),
    "chain": Row(chain, (130, 130), (2048, 4096)),
    "broadcast": Row(broadcast, (9, 24), (2048, 4096)),
    "widened": Row(widened, (130, 136), (2048, 4096), dtypes=("f16", "bf16")),
    "transpose": Row(transposed, (20, 9), (1024, 512)),
    "concat": Row(joined, (3, 20), (1024, 512)),
    "pad and slice": Row(padded, (6, 20), (1024, 512)),
    "embedding": Row(looked_up, (6, 24), (4096, 768), is_nest=True),
    "sums of bags": Row(bags("sum"), (6, 24), (4096, 768), is_nest=True),
    "largest of bags": Row(bags("max"), (6, 24), (4096, 768), is_nest=True, dtypes=("f32", "f64")),
    "place of the largest of bags": Row(bags("argmax"), (6, 24), (4096, 768), is_nest=True, dtypes=("f32",)),
    "elements split in bytes": Row(reinterpreted("i8"), (6, 24), (4096, 768), is_nest=True, dtypes=("f16", "f64")),
    "elements joined to words": Row(reinterpreted("i64"), (6, 24), (4096, 768), is_nest=True, dtypes=("f16", "i8")),
    **{
        name: Row(special(name), (6, 5), (1024, 512), dtypes=dtypes_)
        for name, dtypes_ in (("bessel_i1e", ("f16", "f64")), ("bessel_k0", ("f32",)), ("bessel_y1", ("f32", "f64")))
    },
    **{name: Row(special(name), (6, 5), (1024, 512), dtypes=("f32",)) for name in ("airy_ai", "erfcx", "ndtri")},
    "polynomials and zeta": Row(of_degrees, (6, 5), (1024, 512), is_nest=True, dtypes=("f32",)),
    "mantissas": Row(mantissas, (6, 24), (4096, 768), is_nest=True, dtypes=("f16", "f32", "f64")),
}
CASES = [(name, dtype) for name, row in GRID.items() for dtype in row.dtypes]


def graph_of(name: str, dtype: str, sizes: tuple[int, ...]) -> Graph:
    """The graph of a row of GRID."""
    new = Builder(getattr(dtypes, dtype))
    return new.graph.build([GRID[name].make(new, *sizes)])


def argument(value: Value, random: np.random.Generator) -> Any:
    """An array for an input."""
    shape, dtype = tuple(map(int, value.tensor.shape)), value.tensor.dtype  # type: ignore[arg-type]  # fixed sizes
    if dtype.is_int:
        return random.integers(0, 4, shape, dtype.numpy())
    return random.standard_normal(shape).astype(dtype.numpy())
