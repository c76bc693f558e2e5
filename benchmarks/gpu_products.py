"""Measure products of matrices on a GPU: hidet's kernels beside torch's, which are cuBLAS's.

    python benchmarks/gpu_products.py                                   all rows
    python benchmarks/gpu_products.py --rows 4096x4096x4096:NT:f16      one, written m x n x k : order : dtype
    python benchmarks/gpu_products.py --rows 12x128x128x64:NN:f16       of 12 products at once

Times are medians of CUDA-graph replays, in which inputs take turns, so that those of a call lie in no cache.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
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
from benchmarks.environment import describe_environment
from benchmarks.gpu_rows import DTYPES
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
    """Seconds of torch and hidet, and root mean square errors against f64, relative to the result's."""

    name: str
    torch: float
    hidet: float
    torch_error: float
    hidet_error: float


@click.command()
@click.option(
    "--rows",
    callback=rows_of(ProductName.parse),
    default=",".join(_DEFAULT),
    help="mxnxk:order:dtype, comma-separated.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(rows: tuple[ProductName, ...], json_path: Path | None) -> None:
    """Measure products of matrices on a GPU: hidet's kernels beside torch's."""
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    console, environment = report_console(), describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}")
    table = Table("product", *(f"{system} us" for system in ("torch", "hidet")), "torch / hidet", "errors")
    done: list[ProductRow] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(compiled, rows))
    for name, run in zip(rows, runs, strict=True):
        row = measure(name, run)
        done.append(row)
        times = [f"{seconds * 1e6:.1f}" for seconds in (row.torch, row.hidet)]
        errors = f"{row.torch_error:.1e}, {row.hidet_error:.1e}"
        table.add_row(row.name, *times, f"{row.torch / row.hidet:.2f}", errors)
    table.add_section()
    table.add_row("geometric mean", "", "", f"{geometric_mean([row.torch / row.hidet for row in done]):.2f}", "")
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
    times = [replayed(multiply, inputs) for multiply in (name.multiply, run)]
    return ProductRow(str(name), *times, *errors)


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
    graph = hidet.compile(parse_graph(text, load_registry().operators), target="cuda")
    adapter = DeviceAdapter(torch.device("cuda", 0))
    return lambda *inputs: graph.run(list(inputs), adapter)[0]


def replayed(multiply: Callable[..., object], inputs: Sequence[tuple[Tensor, ...]]) -> float:
    """Seconds of a call, from replays of a CUDA graph that makes one for each of the inputs."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for given in inputs:
            multiply(*given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept = [multiply(*given) for given in inputs]
        durations: list[float] = []
        for _ in range(_REPLAYS + 2):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
            start.record(stream)  # type: ignore[no-untyped-call]  # as above
            graph.replay()
            end.record(stream)  # type: ignore[no-untyped-call]  # as above
            end.synchronize()  # type: ignore[no-untyped-call]  # as above
            durations.append(start.elapsed_time(end) / 1e3)  # type: ignore[no-untyped-call]  # as above
    return statistics.median(durations[2:]) / len(kept)


if __name__ == "__main__":
    main()
