"""Measure products of matrices on the CPU at sizes that nobody chose: hidet beside torch, f32.

    python benchmarks/cpu_products.py                         100 products, 1 thread
    python benchmarks/cpu_products.py --seed 7 --count 20 --json products.json
    python benchmarks/cpu_products.py --shapes 49x512x196,1x2048x2048

A product is a linear layer without bias, [m, k] x [n, k]. Its weights are constants, which hidet may lay out in
advance, as oneDNN does ("packed"). "torch" is `torch.nn.functional.linear`. The peer of a row is the faster one.
Inputs stay in cache from call to call, as an activation does between two layers.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import hidet
from benchmarks.environment import describe_environment
from benchmarks.fma_peak import peak_flops
from benchmarks.options import report_console
from benchmarks.results import OUR_SYSTEM, geometric_mean, ratio_to_best_peer
from hidet.cli.timing import Latency, measure_alternately

MOST = 2048
_BOUND_BY_ARITHMETIC = 8.0
"""Operations for a byte of operands and result from which a product is judged by its share of the FMA peak: what one
core multiplies while it reads a byte of its last cache."""
_LEAST_FLOPS = 2e6
"""Below it a call is over before its cost in Python is small."""
_LARGEST_ERROR = 2e-6
"""Relative to the sum of absolute products, of which float32 sums lose a few parts in 2^24."""


@dataclass(frozen=True, slots=True)
class Product:
    """[m, k] x [n, k] gives [m, n]."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def is_bound_by_arithmetic(self) -> bool:
        moved = 4 * (self.m * self.k + self.n * self.k + self.m * self.n)
        return self.flops >= _LEAST_FLOPS and self.flops / moved >= _BOUND_BY_ARITHMETIC


@dataclass(frozen=True, slots=True)
class Row:
    """What a product takes, by system. peak: FMA operations a second around it; error: hidet's, as `_LARGEST_ERROR`."""

    product: Product
    latencies: Mapping[str, Latency]
    peak: float
    error: float

    @property
    def ratio(self) -> float:
        """Beside the faster peer."""
        ratio = ratio_to_best_peer(self.latencies)
        assert ratio is not None
        return ratio

    @property
    def packed_ratio(self) -> float:
        """Beside oneDNN."""
        return self.latencies[OUR_SYSTEM].median / self.latencies["packed"].median

    @property
    def share(self) -> float:
        return self.product.flops / self.latencies[OUR_SYSTEM].median / self.peak


def seeded_products(seed: int, count: int) -> list[Product]:
    """Sizes of 1 to `MOST`, about as many of 1 to 2 as of 1024 to 2048; odd ones in every second product, which is
    [odd, odd] x [odd, odd], and even ones in the others."""
    generator = random.Random(seed)

    def size(is_odd: bool) -> int:
        number = round(2 ** generator.uniform(0, math.log2(MOST)))
        return min(number | 1, MOST - 1) if is_odd else number + number % 2

    return [Product(*(size(bool(number % 2)) for _ in range(3))) for number in range(count)]


def _parse_shapes(ctx: click.Context, param: click.Parameter, value: str | None) -> list[Product] | None:
    if value is None:
        return None
    texts = [text.split("x") for text in value.split(",")]
    if not all(len(text) == 3 and all(map(str.isdecimal, text)) for text in texts):
        raise click.BadParameter(f"{value!r} is no list of products such as 49x512x196", ctx, param)
    return [Product(*map(int, text)) for text in texts]


@click.command()
@click.option("--seed", default=0, show_default=True)
@click.option("--count", default=100, show_default=True, help="Products that are drawn.")
@click.option("--shapes", callback=_parse_shapes, help="These products in place of drawn ones: m x n x k.")
@click.option("--threads", default=1, show_default=True)
@click.option("--seconds", default=0.03, show_default=True, help="Seconds a system's turn takes; there are five turns.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(
    seed: int, count: int, shapes: list[Product] | None, threads: int, seconds: float, json_path: Path | None
) -> None:
    """Measure products of matrices on the CPU at sizes that nobody chose: hidet beside torch, f32."""
    torch.set_num_threads(threads)
    products = shapes or seeded_products(seed, count)
    shown = track(products, "products", console=Console(stderr=True), transient=True)
    rows = [_measure(product, threads, seconds) for product in shown]
    _print(report_console(), rows)
    if json_path is not None:
        result = {**describe_environment(), "seed": seed, "threads": threads, "rows": [asdict(row) for row in rows]}
        json_path.write_text(json.dumps(result, indent=1), encoding="utf-8")
    wrong = [str(row.product) for row in rows if not row.error <= _LARGEST_ERROR]
    if wrong:
        raise click.ClickException(f"results are wrong: {', '.join(wrong)}")


def _measure(product: Product, threads: int, seconds: float) -> Row:
    generator = torch.Generator().manual_seed(product.m * product.n + product.k)
    layer = nn.Linear(product.k, product.n, bias=False).eval().requires_grad_(False)
    x = torch.randn(product.m, product.k, generator=generator)
    compiled = hidet.compile(layer, (x,))
    runs: dict[str, Callable[[], Tensor]] = {
        "torch": lambda: functional.linear(x, layer.weight),
        "packed": _packed(x, layer.weight),
        OUR_SYSTEM: lambda: compiled(x),
    }
    exact = x.double() @ layer.weight.double().T
    size = x.abs().double() @ layer.weight.abs().double().T
    error = float(((runs[OUR_SYSTEM]() - exact).abs() / size).max())
    before = peak_flops(threads, 0.01)
    latencies = measure_alternately(dict(runs), seconds, rounds=5, pause=0.005)
    return Row(product, latencies, max(before, peak_flops(threads, 0.01)), error)


def _packed(x: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    """oneDNN's product with weights that it has laid out for this number of rows, as Inductor calls it."""
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), x.shape[0])
    multiply = torch.ops.mkldnn._linear_pointwise
    return lambda: multiply(x, laid_out, None, "none", [], "")


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    """Lines below the tables."""
    for title, part in (
        ("all", rows),
        ("even ones", [row for row in rows if not row.product.k % 2]),
        ("odd ones", [row for row in rows if row.product.k % 2]),
        ("of two million operations and more", [row for row in rows if row.product.flops >= _LEAST_FLOPS]),
    ):
        if part:
            yield (
                "geometric mean of the time beside oneDNN, beside the faster peer: "
                f"{geometric_mean([row.packed_ratio for row in part]):.2f}, "
                f"{geometric_mean([row.ratio for row in part]):.2f} ({title}, {len(part)})"
            )
    bound = [row for row in rows if row.product.is_bound_by_arithmetic]
    if bound:
        below, mean = sum(row.share < 0.7 for row in bound), geometric_mean([row.share for row in bound])
        yield f"share of the FMA peak, {len(bound)} bound by arithmetic: {mean:.0%} in the mean, {below} below 70 %"


def _print(console: Console, rows: Sequence[Row]) -> None:
    for title, key in (("Slowest beside the peer", lambda row: -row.ratio), ("Least share of the peak", _share_first)):
        table = Table(title=title)
        for name in ("m x n x k", "torch us", "packed us", "hidet us", "hidet / peer", "% of peak"):
            table.add_column(name, justify="right")
        for row in sorted(rows, key=key)[: len(rows) if len(rows) <= 20 else 15]:
            times = [f"{row.latencies[name].median * 1e6:.1f}" for name in ("torch", "packed", OUR_SYSTEM)]
            share = f"{row.share:.0%}" if row.product.is_bound_by_arithmetic else "-"
            table.add_row(str(row.product), *times, f"{row.ratio:.2f}", share)
        console.print(table)
    for line in _summary(rows):
        console.print(line)


def _share_first(row: Row) -> float:
    return row.share if row.product.is_bound_by_arithmetic else math.inf


if __name__ == "__main__":
    main()
