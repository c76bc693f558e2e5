"""Measure products of matrices on a GPU: hidet's kernels beside the fastest of those that cublasLt proposes.

    python benchmarks/gpu_products.py                                   all rows
    python benchmarks/gpu_products.py --drawn 200                       200 that nobody has chosen
    python benchmarks/gpu_products.py --rows 4096x4096x4096:NT:f16      one, written m x n x k : order : dtype
    python benchmarks/gpu_products.py --rows 12x128x128x64:NN:f16       of 12 products at once

Times are medians of CUDA-graph replays, in which inputs take turns, so that those of a call lie in no cache. Systems
take turns as well, each behind a rest, so that none is slowed by what the one before has heated up.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.table import Table
from torch import Tensor

import hidet
from benchmarks.cublas_lt import products
from benchmarks.environment import describe_environment
from benchmarks.gpu_rows import DTYPES
from benchmarks.gpu_systems import captured
from benchmarks.options import report_console, rows_of
from benchmarks.results import geometric_mean
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.torch.tensors import DeviceAdapter

_DTYPES = {**DTYPES, "tf32": torch.float32, "f64": torch.float64}
"""Types of rows; tf32 is f32 that may be rounded to it before it is multiplied."""
_ORDERS = ("NN", "NT", "TN", "TT")
_CACHE_BYTES = 120e6
"""More than twice the second-level cache of the largest device."""
_MOST_INPUTS = 40
_REPLAYS = 9
_TURNS, _REST = 3, 5e-3
_PROPOSALS, _FINALISTS = 12, 2
"""Algorithms that cublasLt is asked for, and those of them that are timed in turns with the others."""
_MOST_ERROR = 1e-2
"""Of a proposed algorithm that is taken for right."""
_WORST = 10
_LEAST_PRODUCTS, _MOST_PRODUCTS = 1e6, 3e11
"""Multiplications of drawn products."""
_DEFAULT = (
    *("8192x8192x8192:NT:f16", "4096x4096x4096:NT:f16", "4096x4096x4096:NN:bf16", "2048x2048x2048:NT:f16"),
    *("1024x1024x1024:NT:f16", "512x512x512:NT:f16", "256x4096x4096:NT:f16", "16x4096x4096:NT:f16"),
    *("1x4096x4096:NT:f16", "1x14336x4096:NT:f16", "128x768x768:NT:f16", "128x2304x768:NT:f16"),
    *("128x3072x768:NT:f16", "128x768x3072:NT:f16", "2048x768x768:NT:f16", "2047x2039x1000:NT:f16"),
    *("100x1001x1001:NT:f16", "333x777x555:NN:bf16", "1x1000x2048:NT:f16", "1x128256x4096:NT:bf16"),
    *("12x128x128x64:NT:f16", "12x128x64x128:NN:f16", "96x197x64x197:NN:f16", "32x2048x128x2048:NN:bf16"),
    *("2048x2048x2048:NT:f32", "128x768x3072:NT:f32", "1x4096x4096:NT:f32", "333x777x555:NN:f32"),
    *("2048x2048x2048:NT:tf32", "128x768x3072:NT:tf32", "1x4096x4096:NT:tf32", "333x777x555:NN:tf32"),
    *("12x128x128x64:NT:f32", "1024x1024x1024:NN:f64", "333x777x555:NN:f64"),
)


@dataclass(frozen=True, slots=True)
class ProductName:
    """`batch` products [m, k] x [k, n]. order: whether operands lie as they are multiplied (N) or transposed (T)."""

    batch: int
    m: int
    n: int
    k: int
    order: str
    dtype: str

    @classmethod
    def parse(cls, text: str) -> ProductName:
        """ValueError for what is no "mxnxk:order:dtype" with another number in front for several products."""
        sizes, order, dtype = (*text.split(":"), "", "")[:3]
        numbers = sizes.split("x")
        if text.count(":") != 2 or len(numbers) not in (3, 4) or not all(map(str.isdecimal, numbers)):
            raise ValueError(f"{text!r} is no row: write mxnxk:order:dtype, as 128x768x768:NT:f16")
        if order not in _ORDERS or dtype not in _DTYPES:
            raise ValueError(
                f"{text!r}: the order is one of {', '.join(_ORDERS)}, the dtype one of {', '.join(_DTYPES)}"
            )
        batch, m, n, k = map(int, ("1", *numbers)[-4:])
        return cls(batch, m, n, k, order, dtype)

    def __str__(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{batch}{self.m}x{self.n}x{self.k}:{self.order}:{self.dtype}"

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the operands as they lie in memory."""
        left, right = (self.m, self.k), (self.k, self.n)
        of_left, of_right = left if self.order[0] == "N" else left[::-1], right if self.order[1] == "N" else right[::-1]
        batch = (self.batch,) if self.batch > 1 else ()
        return (*batch, *of_left), (*batch, *of_right)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of operands as they lie in memory."""
        torch.backends.cuda.matmul.allow_tf32 = self.dtype == "tf32"
        return (a if self.order[0] == "N" else a.mT) @ (b if self.order[1] == "N" else b.mT)


@dataclass(frozen=True, slots=True)
class ProductRow:
    """Seconds of torch, which takes the first algorithm that cuBLAS proposes, of the fastest that cublasLt proposes,
    and of hidet, and root mean square errors of torch and hidet against f64, relative to the result's."""

    name: str
    torch: float
    cublas: float
    hidet: float
    torch_error: float
    hidet_error: float

    @property
    def ratio(self) -> float:
        """How many times as fast as the fastest of cuBLAS hidet is."""
        return self.cublas / self.hidet


@click.command()
@click.option(
    "--rows",
    callback=rows_of(ProductName.parse),
    default=",".join(_DEFAULT),
    help="mxnxk:order:dtype, comma-separated.",
)
@click.option("--drawn", type=click.IntRange(min=1), help="So many rows that are drawn by a seed, instead of --rows.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(rows: tuple[ProductName, ...], drawn: int | None, seed: int, json_path: Path | None) -> None:
    """Measure products of matrices on a GPU: hidet's kernels beside those of cublasLt."""
    rows = rows if drawn is None else drawn_products(drawn, seed)
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    console, environment = report_console(), describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}")
    table = Table("product", "torch us", "cublasLt us", "hidet us", "cublasLt / hidet", "errors")
    done: list[ProductRow] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(compiled, rows))
    for name, run in zip(rows, runs, strict=True):
        row = measure(name, run)
        done.append(row)
    for row in sorted(done, key=lambda row: row.ratio)[: _WORST if drawn else None]:
        times = [f"{seconds * 1e6:.1f}" for seconds in (row.torch, row.cublas, row.hidet)]
        table.add_row(row.name, *times, f"{row.ratio:.2f}", f"{row.torch_error:.1e}, {row.hidet_error:.1e}")
    table.add_section()
    table.add_row(
        f"geometric mean of {len(done)}", "", "", "", f"{geometric_mean([row.ratio for row in done]):.3f}", ""
    )
    console.print(table)
    if json_path is not None:
        text = json.dumps({**environment, "products": [asdict(row) for row in done]}, indent=2)
        json_path.write_text(text, encoding="utf-8")


def measure(name: ProductName, run: Callable[..., Any]) -> ProductRow:
    """Time a product with torch and with hidet, which `run` is, on the same inputs."""
    dtype = _DTYPES[name.dtype]
    nbytes = dtype.itemsize * name.batch * (name.m * name.k + name.k * name.n + name.m * name.n)
    count = max(2, min(_MOST_INPUTS, int(_CACHE_BYTES // nbytes) + 1))
    inputs = [tuple(torch.randn(shape, device="cuda", dtype=dtype) for shape in name.shapes) for _ in range(count)]
    exact = name.multiply(*(x.double() for x in inputs[0]))
    errors = [relative_error(multiply(*inputs[0]), exact) for multiply in (name.multiply, run)]
    a, b = inputs[0]
    proposed = products(a, b, name.order, is_tf32=name.dtype == "tf32", most=_PROPOSALS)
    right = [multiply for multiply in proposed if relative_error(multiply(*inputs[0]), exact) < _MOST_ERROR]
    hinted = [replayed(multiply, inputs, replays=1) for multiply in right]
    ranked = [right[place] for place in sorted(range(len(right)), key=hinted.__getitem__)]
    systems = (name.multiply, run, *ranked[:_FINALISTS])
    torch_seconds, seconds, *best = replayed_in_turns(systems, inputs)
    return ProductRow(str(name), torch_seconds, min(torch_seconds, *best), seconds, *errors)


def drawn_products(count: int, seed: int) -> tuple[ProductName, ...]:
    """Products of any size: 1 to 8192 rows, sums of 16 to 8192 terms; every third with any numbers, odd ones too, the
    others with multiples of 8, or of 64, columns and terms."""
    generator = random.Random(seed)
    found: list[ProductName] = []
    while len(found) < count:
        step = (1, 8, 64)[len(found) % 3]
        m, n, k = (math.exp(generator.uniform(math.log(least), math.log(8192))) for least in (1, 16, 16))
        columns, terms = (max(step, round(size / step) * step) for size in (n, k))
        name = ProductName(1, round(m), columns, terms, generator.choice(("NT", "NT", "NN", "TN")), "f16")
        if _LEAST_PRODUCTS <= name.m * name.n * name.k <= _MOST_PRODUCTS:
            found.append(name)
    return tuple(found)


def relative_error(result: Tensor, exact: Tensor) -> float:
    """The root mean square error of a result, over that of the exact one."""
    return ((result.double() - exact).square().mean() / exact.square().mean()).sqrt().item()


def compiled(name: ProductName) -> Callable[..., Any]:
    """hidet's kernel of a product, called without what torch.compile adds."""
    dtype, precision = ("f32", "tf32") if name.dtype == "tf32" else (name.dtype, "ieee")
    left, right = (f"{dtype}{list(shape)}@cuda:0" for shape in name.shapes)
    batch = f"{name.batch}, " if name.batch > 1 else ""
    order = ", ".join(f"{which}={turn == 'T'}" for which, turn in zip(("trans_a", "trans_b"), name.order, strict=True))
    text = (
        f"graph g(%a: {left}, %b: {right}):\n"
        f'  %0: {dtype}[{batch}{name.m}, {name.n}]@cuda:0 = matmul(%a, %b, {order}, fp32_precision="{precision}")\n'
        "  return %0\n"
    )
    return compiled_text(text)


def compiled_text(text: str) -> Callable[..., Any]:
    """The one result of a graph on the first GPU, given as text, called without what torch.compile adds."""
    run = compiled_results(text)
    return lambda *inputs: run(*inputs)[0]


def compiled_results(text: str) -> Callable[..., Any]:
    """As `compiled_text`, with all results."""
    graph = hidet.compile(parse_graph(text, load_registry().operators), target="cuda")
    adapter = DeviceAdapter(torch.device("cuda", 0))
    return lambda *inputs: graph.run(list(inputs), adapter)


def replayed(multiply: Callable[..., object], inputs: Sequence[tuple[Tensor, ...]], replays: int = _REPLAYS) -> float:
    """Seconds of a call, from replays of a CUDA graph that makes one for each of the inputs."""
    return statistics.median(_seconds(_with_each(multiply, inputs), replays)) / len(inputs)


def replayed_in_turns(systems: Sequence[Callable[..., object]], inputs: Sequence[tuple[Tensor, ...]]) -> list[float]:
    """Seconds of a call of each system, from replays of CUDA graphs in turns, there and back, each behind a rest."""
    runs = [_with_each(multiply, inputs) for multiply in systems]
    durations: list[list[float]] = [[] for _ in systems]
    for turn in range(_TURNS):
        places = range(len(runs))
        for place in places if turn % 2 == 0 else reversed(places):
            time.sleep(_REST)
            durations[place] += _seconds(runs[place], _REPLAYS // _TURNS)
    return [statistics.median(each) / len(inputs) for each in durations]


def _with_each(multiply: Callable[..., object], inputs: Sequence[tuple[Tensor, ...]]) -> Callable[[], object]:
    """A call with each of the inputs, as one launch, which keeps all results: each has memory of its own."""
    return captured(lambda: [multiply(*given) for given in inputs])


def _seconds(run: Callable[[], object], replays: int) -> list[float]:
    """Seconds of replays, but for the first two."""
    durations: list[float] = []
    for _ in range(replays + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
        start.record()  # type: ignore[no-untyped-call]  # as above
        run()
        end.record()  # type: ignore[no-untyped-call]  # as above
        end.synchronize()  # type: ignore[no-untyped-call]  # as above
        durations.append(start.elapsed_time(end) / 1e3)  # type: ignore[no-untyped-call]  # as above
    return durations[2:]


if __name__ == "__main__":
    main()
