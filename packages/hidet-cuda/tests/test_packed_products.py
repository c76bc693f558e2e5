"""Products of few rows with packed weights, run by the simulator and held against f64."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hidet.cuda.schedules.packed_gemv import PackedTiling
from hidet.cuda.schedules.packed_product import PackedProductRule
from hidet.cuda.testing.schedules import assert_compiles, rules_of, run_text, sources_of

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
                lines.append(
                    f"  %v: {code}[{n}, {blocks}] = slice(%y, starts=[0, 0], stops=[{n}, {blocks}], steps=[1, 1])"
                )
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


def check(
    text: str, inputs: Mapping[str, Array], value: Array, unit: float, *, arch: str = "sm_90a", offset: int = 0
) -> None:
    """One kernel of the rule gives x value^T + b as exactly as its types let it. offset: where inputs start."""
    assert rules_of(text, arch) == [RULE]
    (found,) = run_text(text, inputs, arch, offset)
    x = inputs["x"].astype(np.float64)
    right = x @ value.T + inputs["b"].astype(np.float64)
    size = np.sqrt((x**2) @ (value.T**2)) + np.abs(right)
    assert np.all(np.abs(found.astype(np.float64) - right) <= 2 * unit * size)


@pytest.mark.parametrize("x", ["f16", "bf16"])
@pytest.mark.parametrize("code", ["u4", "i4", "u8", "i8"])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("scale", ["own", "f32"])
@pytest.mark.thorough(every=3)
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
@pytest.mark.thorough(every=2)
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


def test_a_bias_is_read_before_anything_is_multiplied() -> None:
    text = onnx_text(8, 48, 512, 64, code="u4", x="f16", scale="f16", zeros=True)
    source, *_ = sources_of(text)
    kernel = source[source.index("__global__") :]
    assert kernel.index("early = ") < kernel.index("cuda_mma_") < kernel.index("__syncthreads()")
    assert kernel.index("__syncthreads()") < kernel.rindex("early")


@pytest.mark.parametrize("code", ["u4", "i8"])
@pytest.mark.parametrize(("m", "block"), [(1, 32), (1, 128), (8, 32), (8, 128)])
def test_large_products_compile_without_spills(code: str, m: int, block: int) -> None:
    assert_compiles(onnx_text(m, 8192, 8192, block, code=code, x="f16", scale="f16", zeros=True), "sm_90a")


@pytest.mark.parametrize("tiling", [(2, 1, 2), (4, 2, 2), (16, 1, 2), (2, 2, 8), (4, 1, 4)])
def test_every_tiling_gives_the_same_product(tiling: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    params = PackedTiling(*tiling)
    monkeypatch.setattr(PackedProductRule, "default", lambda *_: params)
    weights = Weights("u4", 40, 1184, 32)
    text = onnx_text(5, 40, 1184, 32, code="u4", x="f16", scale="f16", zeros=True)
    check(text, inputs_of(weights, 5, 1184, "u4", "f16"), weights.value, UNITS["f16"])


@pytest.mark.parametrize("k", [512, 544])
def test_tensors_that_start_anywhere_are_read_element_by_element(k: int) -> None:
    """Views of larger tensors, as front-ends hand them over, take the other kernel of the program."""
    weights = Weights("u4", 24, k, 32)
    text = onnx_text(2, 24, k, 32, code="u4", x="f16", scale="f16", zeros=True)
    inputs = inputs_of(weights, 2, k, "u4", "f16")
    check(text, inputs, weights.value, UNITS["f16"], offset=1)


@pytest.mark.parametrize("code", ["f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("x", ["f16", "bf16"])
def test_floats_of_8_bits_are_codes_with_a_scale_of_a_column(code: str, x: str) -> None:
    m, n, k = 2, 24, 512
    text = f"""
graph g(%x: {x}[{m}, {k}], %p: {code}[{n}, {k}], %s: {x}[{n}], %b: {x}[{n}]):
  %0: {x}[{n}, {k}] = dequantize(%p, %s, axis=0)
  %1: {x}[{m}, {n}] = linear(%x, %0, %b)
  return %1
"""
    rng = np.random.default_rng(1)
    kind = ml_dtypes.float8_e4m3fn if code == "f8e4m3" else ml_dtypes.float8_e5m2
    inputs = {
        "x": rng.standard_normal((m, k)).astype(FLOATS[x]),
        "p": rng.standard_normal((n, k)).astype(kind),
        "s": rng.uniform(0.5, 2, n).astype(FLOATS[x]),
        "b": rng.standard_normal(n).astype(FLOATS[x]),
    }
    value = inputs["p"].astype(np.float64) * inputs["s"].astype(np.float64)[:, None]
    check(text, inputs, value, UNITS[x])
    assert RULE not in rules_of(text, "sm_80"), "conversions of 8-bit floats are instructions from sm_89 on"


TORCH = """
graph g(%x: f16[2, 512], %p: u8[24, 256], %s: f16[24, 8, 1], %b: f16[24]):
  %0: u8[] = full(shape=[], value=15, dtype=u8)
  %1: u8[] = full(shape=[], value=4, dtype=u8)
  %2: u8[24, 256] = bitwise_and(%p, %0)
  %3: u8[24, 256] = shift_right(%p, %1)
  %4: u8[24, 256, 1] = reshape(%2, shape=[24, 256, 1])
  %5: u8[24, 256, 1] = reshape(%3, shape=[24, 256, 1])
  %6: u8[24, 256, 2] = concat(%4, %5, axis=2)
  %7: f16[24, 256, 2] = cast(%6, dtype=f16)
  %8: f16[] = full(shape=[], value=8.0, dtype=f16)
  %9: f16[24, 256, 2] = sub(%7, %8)
  %10: f16[24, 8, 64] = reshape(%9, shape=[24, 8, 64])
  %11: f16[24, 8, 64] = mul(%10, %s)
  %12: f16[24, 512] = reshape(%11, shape=[24, 512])
  %13: f16[2, 24] = linear(%x, %12, %b)
  return %13
"""


def test_shifts_and_masks_of_a_graph_are_understood_as_codes() -> None:
    weights = Weights("u4", 24, 512, 64)
    value = (weights.codes - 8) * np.repeat(weights.scales.astype(np.float64), 64, axis=1)
    inputs = inputs_of(weights, 2, 512, "u4", "f16")
    inputs["p"], inputs["s"] = nibbles(weights.codes), weights.scales[:, :, None]
    check(TORCH, inputs, value, UNITS["f16"])


def test_high_nibbles_first_are_no_codes_of_this_rule() -> None:
    assert RULE not in rules_of(TORCH.replace("concat(%4, %5", "concat(%5, %4"), "sm_90a")


@pytest.mark.parametrize("is_transposed", [True, False])
def test_a_matmul_takes_packed_columns_either_way_round(is_transposed: bool) -> None:
    n, k = 24, 512
    turned = "" if is_transposed else f"  %t: f16[{k}, {n}] = transpose(%0, perm=[1, 0])\n"
    text = f"""
graph g(%x: f16[3, {k}], %p: i8[{n}, {k}], %s: f16[{n}], %b: f16[{n}]):
  %0: f16[{n}, {k}] = dequantize(%p, %s, axis=0)
{turned}  %1: f16[3, {n}] = matmul(%x, {"%0" if is_transposed else "%t"}, trans_b={is_transposed})
  %2: f16[3, {n}] = add(%1, %b)
  return %2
"""
    rng = np.random.default_rng(2)
    inputs = {
        "x": rng.standard_normal((3, k)).astype(np.float16),
        "p": rng.integers(-128, 128, (n, k)).astype(np.int8),
        "s": rng.uniform(0.001, 0.01, n).astype(np.float16),
        "b": rng.standard_normal(n).astype(np.float16),
    }
    check(text, inputs, inputs["p"] * inputs["s"].astype(np.float64)[:, None], UNITS["f16"])


def test_what_follows_the_product_is_computed_with_it() -> None:
    tail = "%1: f16[2, 40] = silu(%0)\nreturn %1"
    text = onnx_text(2, 40, 256, 32, code="u4", x="f16", scale="f16", zeros=True, tail=tail)
    weights = Weights("u4", 40, 256, 32)
    inputs = inputs_of(weights, 2, 256, "u4", "f16")
    assert rules_of(text, "sm_90a") == [RULE]
    (found,) = run_text(text, inputs, "sm_90a")
    total = inputs["x"].astype(np.float64) @ weights.value.T + inputs["b"]
    np.testing.assert_allclose(found.astype(np.float64), total / (1 + np.exp(-total)), rtol=5e-3, atol=5e-2)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"m": 9}, "more than eight rows"),
        ({"block": 16}, "blocks of 16 codes of 4 bits"),
        ({"k": 260}, "rows of x that are no whole parts of 16 bytes"),
        ({"x": "f32", "scale": "f32"}, "f32, which matrix units do not multiply"),
    ],
)
def test_other_products_are_what_they_were(change: Mapping[str, Any], why: str) -> None:
    sizes: dict[str, Any] = {"m": 2, "n": 24, "k": 256, "block": 32, "code": "u4", "x": "f16", "scale": "f16"}
    sizes.update(change)
    m, n, k, block = (sizes.pop(name) for name in ("m", "n", "k", "block"))
    assert RULE not in rules_of(onnx_text(m, n, k, block, zeros=True, **sizes), "sm_90a"), why


def test_a_weight_that_others_read_too_is_computed_once() -> None:
    text = onnx_text(2, 24, 256, 32, code="u4", x="f16", scale="f16", zeros=True, tail="return %0, %d")
    assert rules_of(text, "sm_90a") == ["gpu.elementwise", "cuda.matmul"]


def test_a_part_of_64_codes_takes_a_logical_operation_a_pair_and_no_conversion() -> None:
    text = onnx_text(1, 64, 4096, 32, code="u4", x="f16", scale="f16", zeros=False)
    aligned = sources_of(text, "sm_90a")[0]
    loop = aligned[aligned.index("for (long long part") :]
    loop = loop[: loop.index("\n  }\n")]
    assert len(re.findall(r"cuda_lop3", loop)) == 32
    assert loop.count("mma_m16n8k16") == 8
    assert loop.count("to_f32") == 0 and loop.count("to_f16") == 0
