"""Measure products of few rows with quantised weights on a GPU: hidet's kernel beside dequantising and multiplying.

    python benchmarks/gpu_quantized.py                                     all rows
    python benchmarks/gpu_quantized.py --rows 1x8192x8192:u4:128:f16       one: m x n x k : codes : group : type of x

A call has several layers on the same x, one after the other as in a model. Times are of a layer: medians of replays of
CUDA graphs, in which weights take turns, so that those that are read lie in no cache. torch makes the weight of x's
type from the codes by operators of its own, then multiplies; a second column has the product alone, of a weight that
was kept in 16 bits.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
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
from torch.nn.functional import linear

from benchmarks.environment import describe_environment
from benchmarks.gpu_products import compiled_results, relative_error, replayed
from benchmarks.options import report_console, rows_of

_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
_BITS = {"u4": 4, "i8": 8}
_BANDWIDTH = 4.3e12
"""Bytes a second that an H200 reads at most in practice."""
_CACHE_BYTES = 120e6
"""More than twice the second-level cache of the largest device."""
_LEAST_WEIGHTS = 2
_LAYERS = 16
"""Of a call."""
_ZERO = 8
_SIZES, _ROWS = ("8192x8192", "28672x8192"), (1, 2, 4, 8)
_CODES = ("u4:32", "u4:64", "u4:128", "i8:8192")
DEFAULT_LAYERS = tuple(f"{m}x{size}:{codes}:f16" for size, codes, m in product(_SIZES, _CODES, _ROWS))


@dataclass(frozen=True, slots=True)
class LayerName:
    """x[m, k] times a weight [n, k] of `codes`, of which `group` neighbours along k share a scale in x's type."""

    m: int
    n: int
    k: int
    codes: str
    group: int
    dtype: str

    @classmethod
    def parse(cls, text: str) -> LayerName:
        """ValueError for what is no "mxnxk:codes:group:dtype", or whose groups are no whole part of k."""
        sizes, codes, group, dtype = (*text.split(":"), "", "", "")[:4]
        numbers = sizes.split("x")
        if text.count(":") != 3 or len(numbers) != 3 or not all(map(str.isdecimal, (*numbers, group))):
            raise ValueError(f"{text!r} is no row: write mxnxk:codes:group:dtype, as 1x8192x8192:u4:128:f16")
        if codes not in _BITS or dtype not in _DTYPES:
            raise ValueError(f"{text!r}: codes are one of {', '.join(_BITS)}, the dtype one of {', '.join(_DTYPES)}")
        m, n, k = map(int, numbers)
        if min(m, n, k, int(group)) == 0 or k % int(group) or int(group) % 2:
            raise ValueError(f"{text!r}: k is no multiple of an even group")
        return cls(m, n, k, codes, int(group), dtype)

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}:{self.codes}:{self.group}:{self.dtype}"

    @property
    def blocks(self) -> int:
        """Scales of a row of the weight."""
        return self.k // self.group

    @property
    def nbytes(self) -> int:
        """Of codes and scales."""
        return self.n * (self.k * _BITS[self.codes] // 8 + self.blocks * 2)

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Random x, codes as they lie in memory, and scales."""
        dtype, device = _DTYPES[self.dtype], "cuda"
        x = torch.randn(self.m, self.k, dtype=dtype, device=device)
        scales = torch.rand(self.n, self.blocks, device=device).add_(0.5).mul_(2.0 ** -_BITS[self.codes]).to(dtype)
        if self.codes == "u4":
            shape = (self.n, self.blocks, self.group // 2)
            return x, torch.randint(256, shape, dtype=torch.uint8, device=device), scales
        shape = (self.n, self.blocks, self.group)
        return x, torch.randint(-128, 128, shape, dtype=torch.int8, device=device), scales

    def weight(self, codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
        """The weight that codes and scales stand for."""
        if self.codes == "u4":
            codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
            return (codes.to(dtype) - _ZERO).mul_(scales.to(dtype)[..., None]).view(self.n, self.k)
        return codes.to(dtype).mul_(scales.to(dtype)[..., None]).view(self.n, self.k)

    def text(self, layers: int = 1) -> str:
        """The graph of so many layers on the same x, as an importer makes it."""
        place = "@cuda:0"
        stored, count = ("u8", self.group // 2) if self.codes == "u4" else ("i8", self.group)
        packed = f"{stored}[{self.n}, {self.blocks}, {count}]"
        inputs, lines = [f"%x: {self.dtype}[{self.m}, {self.k}]{place}"], list[str]()
        for layer in range(layers):
            inputs.append(f"param %p{layer}: {packed}{place}")
            inputs.append(f"param %s{layer}: {self.dtype}[{self.n}, {self.blocks}]{place}")
            lines += self._lines(layer, place)
        results = ", ".join(f"%y{layer}" for layer in range(layers))
        return "\n".join([f"graph g({', '.join(inputs)}):", *lines, f"  return {results}"]) + "\n"

    def _lines(self, layer: int, place: str) -> list[str]:
        """The nodes of one layer."""
        flat, size = f"[{self.n}, {self.k}]", f"[{self.n}, {self.blocks}, {self.group}]"
        source, zero, lines = f"%p{layer}", "", list[str]()
        if self.codes == "u4":
            shape = f"[{self.n}, {self.blocks}]"
            lines = [
                f"  %u{layer}: u4{size}{place} = unpack({source}, dtype=u4)",
                f"  %z{layer}: u4{shape}{place} = full(shape={shape}, value={_ZERO}, dtype=u4)",
            ]
            source, zero = f"%u{layer}", f", %z{layer}"
        return [
            *lines,
            f"  %c{layer}: {self.codes}{flat}{place} = reshape({source}, shape={flat})",
            f"  %w{layer}: {self.dtype}{flat}{place} = dequantize(%c{layer}, %s{layer}{zero}, axis=1, "
            f"block_size={self.group})",
            f"  %y{layer}: {self.dtype}[{self.m}, {self.n}]{place} = linear(%x, %w{layer})",
        ]


@dataclass(frozen=True, slots=True)
class LayerRow:
    """Seconds of hidet, of torch with the weight dequantised in the call, and with one of 16 bits; root mean square
    errors against f64, relative to the result's; bytes of codes and scales."""

    name: str
    hidet: float
    dequantised: float
    kept: float
    hidet_error: float
    torch_error: float
    nbytes: int


@click.command()
@click.option(
    "--rows",
    callback=rows_of(LayerName.parse),
    default=",".join(DEFAULT_LAYERS),
    help="mxnxk:codes:group:dtype, comma-separated.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(rows: tuple[LayerName, ...], json_path: Path | None) -> None:
    """Measure products of few rows with quantised weights: hidet's kernel beside torch's operators."""
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    console, environment = report_console(), describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}")
    table = Table("product", "hidet us", "GB/s", "of 4.3 TB/s", "dequantised us", "16 bits us", "errors")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(compiled, rows))
    done = []
    for name, run in zip(rows, runs, strict=True):
        row = measure(name, run)
        done.append(row)
        speed = row.nbytes / row.hidet
        times = [f"{seconds * 1e6:.1f}" for seconds in (row.hidet, row.dequantised, row.kept)]
        errors = f"{row.hidet_error:.1e}, {row.torch_error:.1e}"
        table.add_row(row.name, times[0], f"{speed / 1e9:.0f}", f"{speed / _BANDWIDTH:.0%}", *times[1:], errors)
    console.print(table)
    if json_path is not None:
        text = json.dumps({**environment, "layers": [asdict(row) for row in done]}, indent=2)
        json_path.write_text(text, encoding="utf-8")


def measure(name: LayerName, run: Callable[..., Any]) -> LayerRow:
    """Time a layer with torch and with hidet, which `run` is, on the same inputs."""
    dtype = _DTYPES[name.dtype]
    count = max(_LEAST_WEIGHTS, int(_CACHE_BYTES // name.nbytes) + 1)
    inputs = [name.inputs() for _ in range(count)]
    x, codes, scales = inputs[0]
    exact = x.double() @ name.weight(codes, scales, torch.float64).T

    def dequantised(x: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
        return linear(x, name.weight(codes, scales, dtype))

    few = inputs[:_LEAST_WEIGHTS]
    in_turns = [tensor for number in range(_LAYERS) for tensor in inputs[number % count][1:]]
    return LayerRow(
        name=str(name),
        hidet=replayed(run, [(x, *in_turns)]) / _LAYERS,
        dequantised=replayed(dequantised, few),
        kept=replayed(linear, [(x, name.weight(codes, scales, dtype)) for x, codes, scales in few]),
        hidet_error=relative_error(run(x, *in_turns)[0], exact),
        torch_error=relative_error(dequantised(*inputs[0]), exact),
        nbytes=name.nbytes,
    )


def compiled(name: LayerName, layers: int = _LAYERS) -> Callable[..., Any]:
    """hidet's kernels of layers on the same x, called without what torch.compile adds; all their results."""
    return compiled_results(name.text(layers))


if __name__ == "__main__":
    main()
