"""Operators of sizes that nobody tuned to, drawn by a seed: products, convolutions, attention, and what streams."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hidet import dtypes
from hidet.context import CompileContext
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph, Value
from hidet.graph.types import TensorType

OPS = ("product", "convolution", "attention")
"""What most time of a model passes in."""
STREAMING = ("depthwise", "pool", "scan")
"""What reads and writes more than it computes."""
DTYPES = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
"""Of elements; tf32 is f32 that may be rounded to it before it is multiplied."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large cases may be: multiply-adds, at least and at most, elements of a tensor, and the longest axis of a
    product. dtypes: theirs."""

    fewest: int
    multiply_adds: int
    elements: int
    longest: int
    dtypes: tuple[str, ...]


LIMITS: Mapping[str, Limits] = {
    "cpu": Limits(fewest=100_000, multiply_adds=300_000_000, elements=4_000_000, longest=3000, dtypes=("f32",)),
    "cuda": Limits(
        fewest=5_000_000,
        multiply_adds=60_000_000_000,
        elements=60_000_000,
        longest=12000,
        dtypes=("f16", "f16", "bf16", "f32", "tf32"),
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """An operator with the sizes of its inputs.

    kind: what it is, in one word more than `op`. sizes: by name, in the order of the name of the case.
    """

    op: str
    kind: str
    dtype: str
    sizes: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(f'{name}{size}' for name, size in self.sizes)} {self.dtype}"

    def __getitem__(self, name: str) -> int:
        return dict(self.sizes)[name]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the inputs of `graph` and `compute`."""
        return _SHAPES[self.op](self)

    @property
    def multiply_adds(self) -> int:
        """That the result takes."""
        n = dict(self.sizes)
        if self.op == "product":
            return n["b"] * n["m"] * n["n"] * n["k"]
        if self.op == "convolution":
            return n["b"] * _side(n) ** 2 * n["c"] * n["f"] * n["t"] ** 2
        if self.op in ("depthwise", "pool"):
            return n["b"] * _side(n) ** 2 * n["c"] * n["t"] ** 2
        if self.op == "scan":
            return n["r"] * n["n"]
        return 2 * n["b"] * n["h"] * n["q"] * n["k"] * n["d"]

    def inputs(self, seed: int, device: str) -> list[Tensor]:
        """Normally distributed elements."""
        generator = torch.Generator().manual_seed(seed)
        made = (torch.randn(shape, generator=generator) for shape in self.shapes)
        return [x.to(device, DTYPES[self.dtype]) for x in made]

    def compute(self, *inputs: Tensor) -> Tensor:
        """The result by torch, in the elements' type."""
        return _COMPUTED[self.op](self, *inputs)

    def graph(self, ctx: CompileContext) -> Graph:
        """The operator as the compiler of a model meets it: images have their channels last in memory, and weights of a
        CPU are packed before the call."""
        builder = GraphBuilder(ctx.registry.operators)
        device = ctx.target.device
        element = getattr(dtypes, "f32" if self.dtype == "tf32" else self.dtype)
        inputs = [builder.input(TensorType(element, shape, device=device)) for shape in self.shapes]
        return builder.build([_GRAPHS[self.op](self, builder, inputs, ctx)])


def draw_cases(seed: int, count: int, ops: tuple[str, ...], target: str) -> list[Case]:
    """The same cases for the same arguments, the operators in turns; a longer list begins as a shorter one does."""
    generator, limits = random.Random(seed), LIMITS[target]
    found: list[Case] = []
    while len(found) < count:
        op = ops[len(found) % len(ops)]
        case = _DRAWN[op](generator, limits)
        fits = max(map(math.prod, case.shapes)) <= limits.elements
        if fits and limits.fewest <= case.multiply_adds <= limits.multiply_adds and case not in found:
            found.append(case)
    return found


def _side(n: Mapping[str, int]) -> int:
    """Of the result of a window that goes over images of p x p pixels by steps of s."""
    return -(-n["p"] // n["s"])


def _between(generator: random.Random, least: int, most: int) -> int:
    """A whole number whose logarithm is uniform."""
    return min(most, int(least * (most / least + 1 / least) ** generator.random()))


def _product(generator: random.Random, limits: Limits) -> Case:
    kind = generator.choice(("linear", "linear", "matmul", "matmul_nt"))
    batch = 1 if kind == "linear" or generator.random() < 0.6 else _between(generator, 2, 24)
    rows = _between(generator, 1, limits.longest)
    columns, steps = (_between(generator, 8, limits.longest) for _ in range(2))
    sizes = (("b", batch), ("m", rows), ("n", columns), ("k", steps))
    return Case("product", kind, generator.choice(limits.dtypes), sizes)


def _convolution(generator: random.Random, limits: Limits) -> Case:
    side, taps = _between(generator, 7, 120), generator.choice((1, 1, 3, 3, 3, 5))
    stride = generator.choice((1, 1, 2)) if taps > 1 else 1
    channels, filters = (_between(generator, 3, 512) for _ in range(2))
    batch = generator.choice((1, 1, 2, 4) if limits.longest < 10_000 else (1, 4, 16, 32))
    sizes = (("b", batch), ("c", channels), ("f", filters), ("p", side), ("t", taps), ("s", stride))
    return Case("convolution", "conv", generator.choice(limits.dtypes), sizes)


def _attention(generator: random.Random, limits: Limits) -> Case:
    kind = generator.choice(("self", "causal", "cross", "decode"))
    keys = _between(generator, 16, limits.longest // 2)
    queries = 1 if kind == "decode" else _between(generator, 2, keys) if kind == "cross" else keys
    depth, heads = generator.choice((32, 48, 64, 64, 80, 128)), generator.choice((1, 4, 8, 12, 16))
    sizes = (("b", generator.choice((1, 1, 2, 4))), ("h", heads), ("q", queries), ("k", keys), ("d", depth))
    found = [name for name in limits.dtypes if name != "tf32"]
    return Case("attention", kind, generator.choice(found), sizes)


def _windows(generator: random.Random, limits: Limits, op: str, kinds: tuple[str, ...]) -> Case:
    """Windows of each channel alone."""
    side, taps = _between(generator, 7, 120), generator.choice((3, 3, 5))
    sizes = (
        ("b", generator.choice((1, 1, 2, 4) if limits.longest < 10_000 else (1, 4, 16, 32))),
        ("c", _between(generator, 8, 1000)),
        ("p", side),
        ("t", taps),
        ("s", generator.choice((1, 1, 2))),
    )
    found = [name for name in limits.dtypes if name != "tf32"]
    return Case(op, generator.choice(kinds), generator.choice(found), sizes)


def _scan(generator: random.Random, limits: Limits) -> Case:
    rows, length = (_between(generator, 1, limits.longest) for _ in range(2))
    return Case("scan", generator.choice(("rows", "columns")), "f32", (("r", rows), ("n", length)))


_DRAWN: Mapping[str, Callable[[random.Random, Limits], Case]] = {
    "product": _product,
    "convolution": _convolution,
    "attention": _attention,
    "depthwise": lambda generator, limits: _windows(generator, limits, "depthwise", ("depthwise",)),
    "pool": lambda generator, limits: _windows(generator, limits, "pool", ("max", "mean", "max_nchw")),
    "scan": _scan,
}


def _product_shapes(case: Case) -> tuple[tuple[int, ...], ...]:
    batch = (case["b"],) if case["b"] > 1 else ()
    right = (case["k"], case["n"]) if case.kind == "matmul" else (case["n"], case["k"])
    return (*batch, case["m"], case["k"]), (*batch, *right)


def _convolution_shapes(case: Case) -> tuple[tuple[int, ...], ...]:
    return (case["b"], case["p"], case["p"], case["c"]), (case["f"], case["c"], case["t"], case["t"])


def _attention_shapes(case: Case) -> tuple[tuple[int, ...], ...]:
    lead = (case["b"], case["h"])
    return (*lead, case["q"], case["d"]), (*lead, case["k"], case["d"]), (*lead, case["k"], case["d"])


def _depthwise_shapes(case: Case) -> tuple[tuple[int, ...], ...]:
    return (case["b"], case["p"], case["p"], case["c"]), (case["c"], 1, case["t"], case["t"])


def _pool_shapes(case: Case) -> tuple[tuple[int, ...], ...]:
    if case.kind == "max_nchw":
        return ((case["b"], case["c"], case["p"], case["p"]),)
    return (case["b"], case["p"], case["p"], case["c"]), (case["c"], 1, 1, 1)


def _scan_shapes(case: Case) -> tuple[tuple[int, ...], ...]:
    return ((case["r"], case["n"]) if case.kind == "rows" else (case["n"], case["r"]),)


_SHAPES: Mapping[str, Callable[[Case], tuple[tuple[int, ...], ...]]] = {
    "product": _product_shapes,
    "convolution": _convolution_shapes,
    "attention": _attention_shapes,
    "depthwise": _depthwise_shapes,
    "pool": _pool_shapes,
    "scan": _scan_shapes,
}


def _compute_product(case: Case, a: Tensor, b: Tensor) -> Tensor:
    return a @ (b if case.kind == "matmul" else b.mT)


def _compute_convolution(case: Case, image: Tensor, weight: Tensor) -> Tensor:
    turned = image.permute(0, 3, 1, 2)
    found = torch.nn.functional.conv2d(turned, weight, stride=case["s"], padding=case["t"] // 2)
    return found.permute(0, 2, 3, 1)


def _compute_attention(case: Case, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * case["d"] ** -0.5
    if case.kind == "causal":
        scores = scores.masked_fill(torch.ones_like(scores[0, 0]).triu(1).bool(), -torch.inf)
    return torch.softmax(scores, -1) @ v


def _compute_depthwise(case: Case, image: Tensor, weight: Tensor) -> Tensor:
    turned, pad = image.permute(0, 3, 1, 2), case["t"] // 2
    found = torch.nn.functional.conv2d(turned, weight, stride=case["s"], padding=pad, groups=case["c"])
    return found.permute(0, 2, 3, 1)


def _compute_pool(case: Case, image: Tensor, *weight: Tensor) -> Tensor:
    turned = image.permute(0, 3, 1, 2) * weight[0].flatten()[:, None, None] if weight else image
    pool = torch.nn.functional.avg_pool2d if case.kind == "mean" else torch.nn.functional.max_pool2d
    found = pool(turned, case["t"], case["s"], case["t"] // 2)
    return found.permute(0, 2, 3, 1) if weight else found


def _compute_scan(case: Case, x: Tensor) -> Tensor:
    return torch.cumsum(x, 1 if case.kind == "rows" else 0)


_COMPUTED: Mapping[str, Callable[..., Tensor]] = {
    "product": _compute_product,
    "convolution": _compute_convolution,
    "attention": _compute_attention,
    "depthwise": _compute_depthwise,
    "pool": _compute_pool,
    "scan": _compute_scan,
}


def _lanes(ctx: CompileContext) -> int:
    """Elements of f32 in the panels of packed weights."""
    return ctx.target.vector_bits // 32


def _product_graph(case: Case, builder: GraphBuilder, inputs: list[Value], ctx: CompileContext) -> Value:
    left, right = inputs
    if case.kind == "linear" and ctx.target.name == "cpu":
        packed = builder.emit("cpu.pack_matrix", right, lanes=_lanes(ctx), transposed=False)
        return builder.emit("cpu.linear_packed", left, packed, columns=case["n"])
    precision = {} if case.dtype != "tf32" else {"fp32_precision": "tf32"}
    if case.kind == "linear":
        return builder.emit("linear", left, right, **precision)
    return builder.emit("matmul", left, right, trans_b=case.kind == "matmul_nt", **precision)


def _convolution_graph(case: Case, builder: GraphBuilder, inputs: list[Value], ctx: CompileContext) -> Value:
    image, weight = inputs
    image = builder.emit("transpose", image, perm=(0, 3, 1, 2))
    attrs: dict[str, Any] = {"stride": case["s"], "padding": case["t"] // 2}
    if ctx.target.name == "cpu":
        packed = builder.emit("cpu.pack_filters", weight, lanes=_lanes(ctx), groups=1, transposed=False)
        result = builder.emit("cpu.conv_packed", image, packed, filters=case["f"], **attrs)
    else:
        precision = {} if case.dtype != "tf32" else {"fp32_precision": "tf32"}
        result = builder.emit("conv", image, weight, **attrs, **precision)
    return builder.emit("transpose", result, perm=(0, 2, 3, 1))


def _attention_graph(case: Case, builder: GraphBuilder, inputs: list[Value], ctx: CompileContext) -> Value:
    return builder.emit("attention", *inputs, is_causal=case.kind == "causal")


def _depthwise(case: Case, builder: GraphBuilder, inputs: list[Value], ctx: CompileContext, **attrs: int) -> Value:
    """An image with its channels last in memory, by a filter for each."""
    image = builder.emit("transpose", inputs[0], perm=(0, 3, 1, 2))
    if ctx.target.name == "cpu":
        return builder.emit("cpu.depthwise_packed", image, builder.emit("cpu.pack_depthwise", inputs[1]), **attrs)
    return builder.emit("conv", image, inputs[1], groups=case["c"], **attrs)


def _depthwise_graph(case: Case, builder: GraphBuilder, inputs: list[Value], ctx: CompileContext) -> Value:
    result = _depthwise(case, builder, inputs, ctx, stride=case["s"], padding=case["t"] // 2)
    return builder.emit("transpose", result, perm=(0, 2, 3, 1))


def _pool_graph(case: Case, builder: GraphBuilder, inputs: list[Value], ctx: CompileContext) -> Value:
    # Pooling leaves channels where the convolution before it has them.
    image = inputs[0] if len(inputs) == 1 else _depthwise(case, builder, inputs, ctx, stride=1, padding=0)
    name, pad = "avg_pool" if case.kind == "mean" else "max_pool", case["t"] // 2
    result = builder.emit(name, image, kernel=(case["t"],) * 2, stride=(case["s"],) * 2, padding=(pad, pad))
    return result if len(inputs) == 1 else builder.emit("transpose", result, perm=(0, 2, 3, 1))


def _scan_graph(case: Case, builder: GraphBuilder, inputs: list[Value], ctx: CompileContext) -> Value:
    return builder.emit("cumsum", *inputs, axis=1 if case.kind == "rows" else 0)


_GRAPHS: Mapping[str, Callable[[Case, GraphBuilder, list[Value], CompileContext], Value]] = {
    "product": _product_graph,
    "convolution": _convolution_graph,
    "attention": _attention_graph,
    "depthwise": _depthwise_graph,
    "pool": _pool_graph,
    "scan": _scan_graph,
}
