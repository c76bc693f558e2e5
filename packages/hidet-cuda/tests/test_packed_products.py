"""Products of few rows with packed weights, run by the simulator and held against f64."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hidet.cuda.schedules.packed_gemv import PackedTiling
from hidet.cuda.schedules.packed_product import PackedProductRule
from hidet.cuda.testing.schedules import assert_compiles, run_text, rules_of, schedule_text, sources_of
from hidet.fusion.task_verify import verify_tasks
from hidet.gpu.schedules.packed_operand import PackedOperand
from hidet.schedule.select import ScheduledTask

Array = np.ndarray[Any, Any]

RULE = "cuda.packed_product"
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
UNITS = {"f16": 2.0**-10, "bf16": 2.0**-7}


def nibbles(codes: Array) -> Array:
    """Codes from 0 to 15, or from -8 to 7, two to a byte, the first one low."""
    low = codes.astype(np.int64) & 15
    return (low[..., ::2] | low[..., 1::2] << 4).astype(np.uint8)


class Weights:
    """A weight [n, k] of random codes with a scale and maybe a zero for each block: tensors, and its value in f64."""

    def __init__(
        self, code: str, n: int, k: int, block: int, *, scale: str = "f16", zeros: bool = True, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        bits, low = int(code[1:]), -(1 << int(code[1:]) - 1) if code[0] == "i" else 0
        blocks = -(-k // block)
        self.codes = rng.integers(low, low + (1 << bits), (n, blocks * block))
        self.scales = (rng.uniform(0.5, 2.0, (n, blocks)) / 2**bits).astype(FLOATS[scale])
        self.zeros = rng.integers(low, low + (1 << bits), (n, blocks)) if zeros else np.zeros((n, blocks), np.int64)
        spread = [np.repeat(each.astype(np.float64), block, axis=1)[:, :k] for each in (self.zeros, self.scales)]
        self.value = (self.codes[:, :k] - spread[0]) * spread[1]


def onnx_text(m: int, n: int, k: int, block: int, *, code: str, x: str, scale: str, zeros: bool, tail: str = "") -> str:
    """What MatMulNBits becomes: a row of packed blocks, of which k elements count; packed zeros."""
    blocks = -(-k // block)
    width = -(-blocks // 2) * 2
    if code in ("u4", "i4"):
        packed, unpacked = f"u8[{n}, {blocks}, {block // 2}]", f"unpack(%p, dtype={code})"
        zeros_text = f"unpack(%z, dtype={code})"
        zeros_type = f"u8[{n}, {width // 2}]"
    else:
        packed, unpacked, zeros_text = f"{code}[{n}, {blocks}, {block}]", "", ""
        zeros_type, width = f"{code}[{n}, {blocks}]", blocks
    lines = [f"graph g(%x: {x}[{m}, {k}], %p: {packed}, %s: {scale}[{n}, {blocks}], %z: {zeros_type}, %b: {x}[{n}]):"]
    codes = "%p"
    if unpacked:
        lines.append(f"  %u: {code}[{n}, {blocks}, {block}] = {unpacked}")
        codes = "%u"
    lines.append(f"  %r: {code}[{n}, {blocks * block}] = reshape({codes}, shape=[{n}, {blocks * block}])")
    weight = "%r"
    if blocks * block != k:
        lines.append(f"  %k: {code}[{n}, {k}] = slice(%r, starts=[0, 0], stops=[{n}, {k}], steps=[1, 1])")
        weight = "%k"
    zero = ""
    if zeros:
        zero = ", %z"
        if zeros_text:
            lines.append(f"  %y: {code}[{n}, {width}] = {zeros_text}")
            zero = ", %y"
            if width != blocks:
                lines.append(f"  %v: {code}[{n}, {blocks}] = slice(%y, starts=[0, 0], stops=[{n}, {blocks}], steps=[1, 1])")
                zero = ", %v"
    lines.append(f"  %d: {scale}[{n}, {k}] = dequantize({weight}, %s{zero}, axis=1, block_size={block})")
    weight = "%d"
    if scale != x:
        lines.append(f"  %w: {x}[{n}, {k}] = cast(%d, dtype={x})")
        weight = "%w"
    lines.append(f"  %0: {x}[{m}, {n}] = linear(%x, {weight}, %b)")
    lines += [f"  {line}" for line in tail.splitlines()] or ["  return %0"]
    return "\n".join(lines) + "\n"


def inputs_of(weights: Weights, m: int, k: int, code: str, x: str) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    n, blocks = weights.scales.shape
    codes = weights.codes.reshape(n, blocks, -1)
    zeros = weights.zeros
    if code in ("u4", "i4"):
        padded = np.concatenate([zeros, np.zeros((n, blocks % 2), np.int64)], axis=1)
        packed, packed_zeros = nibbles(codes), nibbles(padded)
    else:
        dtype = np.uint8 if code == "u8" else np.int8
        packed, packed_zeros = codes.astype(dtype), zeros.astype(dtype)
    return {
        "x": rng.standard_normal((m, k)).astype(FLOATS[x]),
        "p": packed,
        "s": weights.scales,
        "z": packed_zeros,
        "b": rng.standard_normal(n).astype(FLOATS[x]),
    }


def check(text: str, inputs: Mapping[str, Array], value: Array, unit: float, *, arch: str = "sm_90a") -> None:
    """One kernel of the rule gives x value^T + b as exactly as its types let it."""
    assert rules_of(text, arch) == [RULE]
    (found,) = run_text(text, inputs, arch)
    x = inputs["x"].astype(np.float64)
    right = x @ value.T + inputs["b"].astype(np.float64)
    size = np.sqrt((x**2) @ (value.T**2)) + np.abs(right)
    assert np.all(np.abs(found.astype(np.float64) - right) <= 2 * unit * size)


@pytest.mark.parametrize("x", ["f16", "bf16"])
@pytest.mark.parametrize("code", ["u4", "i4", "u8", "i8"])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("scale", ["own", "f32"])
def test_every_type_of_codes_is_multiplied_as_its_scales_say(code: str, x: str, zeros: bool, scale: str) -> None:
    m, n, k, block = 3, 40, 384, 32
    scale = x if scale == "own" else scale
    weights = Weights(code, n, k, block, scale=scale, zeros=zeros)
    text = onnx_text(m, n, k, block, code=code, x=x, scale=scale, zeros=zeros)
    check(text, inputs_of(weights, m, k, code, x), weights.value, UNITS[x])


@pytest.mark.parametrize("m", range(1, 9))
def test_one_to_eight_rows_are_multiplied_by_one_kernel(m: int) -> None:
    n, k, block = 56, 512, 128
    weights = Weights("u4", n, k, block)
    text = onnx_text(m, n, k, block, code="u4", x="f16", scale="f16", zeros=True)
    check(text, inputs_of(weights, m, k, "u4", "f16"), weights.value, UNITS["f16"])


@pytest.mark.parametrize("block", [32, 64, 128, 256])
@pytest.mark.parametrize(("n", "k"), [(1, 256), (17, 1056), (33, 2048 + 264), (16, 8)])
def test_sizes_need_be_multiples_of_no_tile_and_of_no_block(n: int, k: int, block: int) -> None:
    weights = Weights("u4", n, k, block)
    text = onnx_text(2, n, k, block, code="u4", x="f16", scale="f16", zeros=True)
    check(text, inputs_of(weights, 2, k, "u4", "f16"), weights.value, UNITS["f16"])


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
def test_the_kernel_is_right_and_compiles_without_spills_on_every_architecture(arch: str) -> None:
    for x in ("f16", "bf16"):
        weights = Weights("i4", 24, 320, 64, scale=x)
        text = onnx_text(1, 24, 320, 64, code="i4", x=x, scale=x, zeros=True)
        check(text, inputs_of(weights, 1, 320, "i4", x), weights.value, UNITS[x], arch=arch)
        assert_compiles(text, arch)


@pytest.mark.parametrize("code", ["u4", "i8"])
@pytest.mark.parametrize(("m", "block"), [(1, 32), (1, 128), (8, 32), (8, 128)])
def test_large_products_compile_without_spills(code: str, m: int, block: int) -> None:
    assert_compiles(onnx_text(m, 8192, 8192, block, code=code, x="f16", scale="f16", zeros=True), "sm_90a")


@pytest.mark.parametrize("tiling", [(2, 1, 1), (4, 2, 1), (16, 1, 2), (2, 2, 2), (4, 1, 4)])
def test_every_tiling_gives_the_same_product(tiling: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    params = PackedTiling(*tiling)
    monkeypatch.setattr(PackedProductRule, "default", lambda *_: params)
    weights = Weights("u4", 40, 1184, 32)
    text = onnx_text(5, 40, 1184, 32, code="u4", x="f16", scale="f16", zeros=True)
    check(text, inputs_of(weights, 5, 1184, "u4", "f16"), weights.value, UNITS["f16"])
