"""Measure the steps of docs/tile-kernels.md on a GPU beside torch: cuBLAS for products, a fused kernel for attention.

    python benchmarks/tile_ladder.py                      products of 4096 x 4096 x 4096, 32 heads of 4096 rows
    python benchmarks/tile_ladder.py --size 8192 --dtype bf16

Times are medians of CUDA-graph replays, in which inputs take turns, so that those of a call lie in no cache. Each step
is compared with f64 before it is measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.table import Table
from torch import Tensor

from benchmarks.environment import describe_environment
from benchmarks.gpu_products import replayed
from benchmarks.options import report_console
from hidet.errors import HidetError
from hidet.gpu.testing.tile_ladder import (
    LadderTiles,
    attention,
    naive_product,
    pipelined_product,
    product_with_epilogue,
)
from hidet.gpu.tile.script import TileScript
from hidet.lang import bf16, f16

_DTYPES = {"f16": (f16, torch.float16), "bf16": (bf16, torch.bfloat16)}
_CACHE_BYTES = 120e6
"""More than twice the second-level cache of the largest device."""
_MOST_INPUTS = 40
_HEADS, _DEPTH = 32, 128
_MOST_ERROR = 4.0
"""How many times as far from f64 as torch's result a step's may be."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the ladder. inputs: what it reads, for (size, dtype). peer: torch's function of these. flops: of a
    call, by the size."""

    name: str
    make: Callable[[Any], TileScript]
    inputs: Callable[[int, torch.dtype], tuple[Tensor, ...]]
    peer: Callable[..., Tensor]
    flops: Callable[[int], float]


@dataclass(frozen=True, slots=True)
class StepRow:
    """Seconds of a step and of torch, TFLOP/s of both, and root mean square errors against f64, relative to the
    result's. reason: why the step was not measured; None where it was."""

    name: str
    seconds: float
    torch_seconds: float
    tflops: float
    torch_tflops: float
    error: float
    torch_error: float
    reason: str | None = None


def _randn(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def _matrices(size: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return _randn(size, size, dtype=dtype), _randn(size, size, dtype=dtype)


def _with_bias(size: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return *_matrices(size, dtype), _randn(size, dtype=dtype)


def _heads(size: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(_randn(_HEADS, size, _DEPTH, dtype=dtype) for _ in range(3))


def _linear(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    return torch.addmm(bias, a, b).relu_()


def _attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    # Its kernels take heads of a batch.
    q, keys, values = (x.unsqueeze(0) for x in (q, keys, values))
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values).squeeze(0)


def _of_product(size: int) -> float:
    return 2.0 * size**3


def steps() -> tuple[Step, ...]:
    """The ladder, from its foot."""
    narrow, wide = LadderTiles(64, 64, 32, 3, (2, 2)), LadderTiles(128, 128, 32, 4, (2, 4))
    groups, heads = LadderTiles(128, 256, 64, 4, (8, 1)), LadderTiles(128, 128, 0, 2, (8, 1))

    def product(name: str, make: Callable[..., TileScript], tiles: LadderTiles, lowering: str | None = None) -> Step:
        return Step(name, lambda dtype: make(dtype, tiles, lowering), _matrices, torch.matmul, _of_product)

    return (
        product("1 naive, 64 x 64", naive_product, narrow),
        product("2 pipeline of 3 stages, 64 x 64", pipelined_product, narrow),
        product("3 wider tiles, 128 x 128", pipelined_product, wide),
        Step(
            "3 and an epilogue (bias, relu)",
            lambda dtype: product_with_epilogue(dtype, wide),
            _with_bias,
            _linear,
            _of_product,
        ),
        product("4 warp groups, 128 x 256", pipelined_product, groups, "wgmma"),
        product("4 and TMA, persistent", pipelined_product, groups, "tma"),
        Step(
            f"5 attention, {_HEADS} heads of {_DEPTH}",
            lambda dtype: attention(dtype, _DEPTH, heads),
            _heads,
            _attend,
            lambda size: 4.0 * _HEADS * size**2 * _DEPTH,
        ),
    )


@click.command()
@click.option("--size", type=click.IntRange(64), default=4096, help="Of matrices, and rows and keys of a head.")
@click.option("--dtype", type=click.Choice(list(_DTYPES)), default="f16")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(size: int, dtype: str, json_path: Path | None) -> None:
    """Measure the steps of docs/tile-kernels.md on a GPU, beside torch."""
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    console, environment = report_console(), describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}, {size}, {dtype}")
    table = Table("step", "us", "TFLOP/s", "torch us", "torch TFLOP/s", "torch / hidet", "errors")
    done: list[StepRow] = []
    for step in steps():
        row = measure(step, size, dtype)
        done.append(row)
        table.add_row(*cells(row))
    console.print(table)
    for row in done:
        if row.reason is not None:
            console.print(f"{row.name}: {row.reason}")
    if json_path is not None:
        text = json.dumps(
            {**environment, "size": size, "dtype": dtype, "steps": [asdict(row) for row in done]}, indent=2
        )
        json_path.write_text(text, encoding="utf-8")


def cells(row: StepRow) -> Sequence[str]:
    """A row of the table; "-" for what was not measured."""
    of_torch = f"{row.torch_seconds * 1e6:.1f}", f"{row.torch_tflops:.0f}"
    if row.reason is not None:
        return row.name, "-", "-", *of_torch, "-", f"-, {row.torch_error:.1e}"
    ratio = f"{row.torch_seconds / row.seconds:.2f}"
    errors = f"{row.error:.1e}, {row.torch_error:.1e}"
    return row.name, f"{row.seconds * 1e6:.1f}", f"{row.tflops:.0f}", *of_torch, ratio, errors


def measure(step: Step, size: int, dtype: str) -> StepRow:
    """Time a step and torch's function on the same inputs. ClickException where the step is wrong."""
    of_script, of_torch = _DTYPES[dtype]
    inputs = step.inputs(size, of_torch)
    nbytes = sum(x.nbytes for x in inputs)
    count = max(2, min(_MOST_INPUTS, int(_CACHE_BYTES // nbytes) + 1))
    turns = [inputs, *(step.inputs(size, of_torch) for _ in range(count - 1))]
    exact = step.peer(*(x.double() for x in inputs))
    torch_error = _error(step.peer(*inputs), exact)
    torch_seconds = replayed(step.peer, turns)
    torch_tflops = step.flops(size) / torch_seconds / 1e12
    try:
        script = step.make(of_script)
        # What it stores has the shape of the first input, as matrices are square.
        outputs = [torch.empty_like(inputs[0]) for _ in turns]
        run = script.build()
        run(*inputs, outputs[0])
    except HidetError as error:
        return StepRow(step.name, 0, torch_seconds, 0, torch_tflops, 0, torch_error, error.message)
    error_ = _error(outputs[0], exact)
    if not error_ <= _MOST_ERROR * torch_error:
        raise click.ClickException(f"step {step.name} is wrong: {error_:.1e} from f64, torch {torch_error:.1e}")
    seconds = replayed(run, [(*turn, out) for turn, out in zip(turns, outputs, strict=True)])
    return StepRow(
        step.name, seconds, torch_seconds, step.flops(size) / seconds / 1e12, torch_tflops, error_, torch_error
    )


def _error(result: Tensor, exact: Tensor) -> float:
    return ((result.double() - exact).square().mean() / exact.square().mean()).sqrt().item()


if __name__ == "__main__":
    main()
