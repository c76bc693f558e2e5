"""Measure products of 8-bit floats with scales on a GPU: hidet beside `torch._scaled_mm`, which is cublasLt.

    python benchmarks/gpu_scaled_products.py                              all rows
    python benchmarks/gpu_scaled_products.py --rows 4096x7168x2048:tensor   one: m x n x k : what shares a scale

`tensor`: a scale of each matrix, sums as fast as matrix units add them; `row`: one of each row and column, sums in f32;
`block`: one of 128 neighbours along k, in blocks of 128 rows of the right matrix, sums in f32. Results are bf16. The
third system multiplies in bf16 what was kept like that, the fourth dequantises both matrices first.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.table import Table
from torch import Tensor

from benchmarks.environment import describe_environment
from benchmarks.gpu_products import compiled_text, relative_error, replayed_in_turns
from benchmarks.options import report_console, rows_of

_CACHE_BYTES = 120e6
"""More than twice the second-level cache of the largest device."""
_BLOCK = 128
_SCALES = ("tensor", "row", "block")
_SIZES = ("4096x7168x2048", "4096x7168x16384", "128x7168x2048", "8192x8192x8192", "777x4096x14336", "16x14336x4096")
DEFAULT_ROWS = tuple(f"{size}:{scales}" for size, scales in product((*_SIZES, "1x8192x8192"), _SCALES))


@dataclass(frozen=True, slots=True)
class ScaledName:
    """x[m, k] times w[n, k] transposed, of e4m3, with scales of `tensor`, `row` or `block`."""

    m: int
    n: int
    k: int
    scales: str

    @classmethod
    def parse(cls, text: str) -> ScaledName:
        """ValueError for what is no "mxnxk:scales", and for sizes that torch does not multiply."""
        sizes, _, scales = text.partition(":")
        numbers = sizes.split("x")
        if len(numbers) != 3 or not all(map(str.isdecimal, numbers)) or scales not in _SCALES:
            raise ValueError(f"{text!r} is no row: write mxnxk:scales, scales one of {', '.join(_SCALES)}")
        m, n, k = map(int, numbers)
        least = _BLOCK if scales == "block" else 16
        if m == 0 or n % 16 or k % least or not n * k:
            raise ValueError(f"{text!r}: n is a multiple of 16, k of {least}")
        return cls(m, n, k, scales)

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}:{self.scales}"

    @property
    def is_fast(self) -> bool:
        """Whether sums may lose digits."""
        return self.scales == "tensor"

    @property
    def scale_shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the left and of the right matrix, whose rows are k here."""
        blocks = self.k // _BLOCK
        return {
            "tensor": ((1, 1), (1, 1)),
            "row": ((self.m, 1), (1, self.n)),
            "block": ((self.m, blocks), (blocks, -(-self.n // _BLOCK))),
        }[self.scales]

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Random matrices, and scales, as torch wants them to lie."""
        x, w = (torch.randn(rows, self.k, device="cuda").to(torch.float8_e4m3fn) for rows in (self.m, self.n))
        left, right = (torch.rand(shape, device="cuda") + 0.5 for shape in self.scale_shapes)
        if self.scales == "block":
            left, right = (scale.t().contiguous().t() for scale in (left, right))
        return x, w, left, right

    def dequantised(self, dtype: torch.dtype, x: Tensor, w: Tensor, left: Tensor, right: Tensor) -> Sequence[Tensor]:
        """Both matrices without scales."""
        if self.scales == "block":
            left = left.repeat_interleave(_BLOCK, 1)
            right = right.repeat_interleave(_BLOCK, 0).repeat_interleave(_BLOCK, 1)[:, : self.n]
        return x.to(dtype) * left.to(dtype), w.to(dtype) * right.T.to(dtype)

    @property
    def text(self) -> str:
        """The graph, as an importer makes it."""
        at, shape = "@cuda:0", f"[{self.m}, {self.n}]"
        blocks = self.k // _BLOCK
        left, right = (f"f32{list(scale)}" for scale in self.scale_shapes)
        if self.scales == "block":
            left, right = f"{left}{{1, {self.m}}}", f"{right}{{1, {blocks}}}"
        matrices = f"%x: f8e4m3[{self.m}, {self.k}]{at}, %w: f8e4m3[{self.n}, {self.k}]{at}"
        head = f"graph g({matrices}, %s: {left}{at}, %t: {right}{at}):\n"
        if self.scales == "block":
            product = "block_scaled_matmul(%x, %w, %s, %t, trans_b=True)"
            return f"{head}  %0: bf16{shape}{at} = {product}\n  return %0\n"
        attrs = f"trans_b=True, dtype=f32, fast_accum={self.is_fast}"
        return (
            f"{head}  %0: f32{shape}{at} = matmul(%x, %w, {attrs})\n  %1: f32{shape}{at} = mul(%0, %s)\n"
            f"  %2: f32{shape}{at} = mul(%1, %t)\n  %3: bf16{shape}{at} = cast(%2, dtype=bf16)\n  return %3\n"
        )


@dataclass(frozen=True, slots=True)
class ScaledRow:
    """Seconds of each system, None of what cannot run; root mean square errors against f64, relative to the result's;
    why torch's operator cannot run."""

    name: str
    hidet: float
    torch: float | None
    kept: float
    dequantised: float
    hidet_error: float
    torch_error: float | None
    reason: str


@click.command()
@click.option(
    "--rows", callback=rows_of(ScaledName.parse), default=",".join(DEFAULT_ROWS), help="mxnxk:scales, comma-separated."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(rows: tuple[ScaledName, ...], json_path: Path | None) -> None:
    """Measure products of 8-bit floats with scales: hidet's kernel beside torch's operators."""
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    console, environment = report_console(), describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(lambda name: compiled_text(name.text), rows))
    done = [measure(name, run) for name, run in zip(rows, runs, strict=True)]
    table = Table("product", "hidet us", "TFLOP/s", "scaled_mm us", "bf16 us", "dequantised us", "errors")
    for name, row in zip(rows, done, strict=True):
        speed = 2 * name.m * name.n * name.k / row.hidet
        times = [
            "-" if seconds is None else f"{seconds * 1e6:.1f}" for seconds in (row.torch, row.kept, row.dequantised)
        ]
        errors = ", ".join("-" if error is None else f"{error:.1e}" for error in (row.hidet_error, row.torch_error))
        table.add_row(row.name, f"{row.hidet * 1e6:.1f}", f"{speed / 1e12:.0f}", *times, errors)
    console.print(table)
    for reason in dict.fromkeys(row.reason for row in done if row.reason):
        console.print(f"scaled_mm -: {reason}")
    if json_path is not None:
        text = json.dumps({**environment, "products": [asdict(row) for row in done]}, indent=2)
        json_path.write_text(text, encoding="utf-8")


def measure(name: ScaledName, run: Callable[..., Any]) -> ScaledRow:
    """Time a product with each system on the same inputs."""
    count = max(2, min(64, int(_CACHE_BYTES // (name.n * name.k + name.m * name.k)) + 1))
    inputs = [name.inputs() for _ in range(count)]
    left, right = name.dequantised(torch.float64, *inputs[0])
    exact = left @ right.T
    del left, right

    def scaled(x: Tensor, w: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return torch._scaled_mm(x, w.t(), s, t, out_dtype=torch.bfloat16, use_fast_accum=name.is_fast)

    def dequantised(*given: Tensor) -> Tensor:
        left, right = name.dequantised(torch.bfloat16, *given)
        return left @ right.T

    systems: list[Callable[..., Any]] = [run]
    reason = ""
    try:
        torch_error = relative_error(scaled(*inputs[0]), exact)
        systems.append(scaled)
    except (RuntimeError, ValueError) as error:
        torch_error, reason = None, str(error).splitlines()[0]
    times = replayed_in_turns(systems, inputs)
    (slow,) = replayed_in_turns([dequantised], inputs[:2])
    (kept,) = replayed_in_turns(
        [lambda x, w: x @ w.T], [tuple(name.dequantised(torch.bfloat16, *given)) for given in inputs[:8]]
    )
    return ScaledRow(
        name=str(name),
        hidet=times[0],
        torch=times[1] if len(times) > 1 else None,
        kept=kept,
        dequantised=slow,
        hidet_error=relative_error(run(*inputs[0]), exact),
        torch_error=torch_error,
        reason=reason,
    )


if __name__ == "__main__":
    main()
