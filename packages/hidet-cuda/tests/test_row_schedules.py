"""Softmax, normalisations and reductions: rows read once, run by the simulator and compiled for every architecture."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import assert_compiles, assert_right, run_text, schedule_text, sources_of
from hidet.cuda.testing.tasks import compiled_kernels, scheduled_task
from hidet.gpu.schedules import row_layout
from hidet.ir.printer import print_module
from hidet.ir.stmt import Launch
from hidet.ir.visit import walk
from hidet.schedule.select import ScheduledTask

ARCHITECTURES = ["sm_80", "sm_89", "sm_90a"]


def graph(given: str, result: str, call: str, *more: str) -> str:
    return f"graph g({', '.join([f'%x: {given}', *more])}):\n  %0: {result} = {call}\n  return %0\n"


def same(type_: str, call: str, *more: str) -> str:
    return graph(type_, type_, call, *more)


PER_ELEMENT = {
    "softmax of part of a warp": same("f16[5, 64]", "softmax(%x, axis=-1)"),
    "softmax of an odd length": same("f32[3, 70]", "softmax(%x, axis=-1)"),
    "softmax of a length that is no multiple of a warp's": same("f16[3, 1000]", "softmax(%x, axis=-1)"),
    "softmax of rows that take all threads of a block": same("f32[2, 9000]", "softmax(%x, axis=-1)"),
    "softmax of columns": same("f32[2, 9, 40]", "softmax(%x, axis=1)"),
    "log-softmax": same("f32[3, 1000]", "log_softmax(%x, axis=-1)"),
    "layer norm": same("f16[6, 96]", "layer_norm(%x, %w, %b, eps=1e-05)", "%w: f16[96]", "%b: f16[96]"),
    "layer norm of two axes": same("f32[3, 6, 8]", "layer_norm(%x, %w, rank=2, eps=1e-05)", "%w: f32[6, 8]"),
    "RMS norm": same("bf16[6, 96]", "rms_norm(%x, %w, eps=1e-06)", "%w: bf16[96]"),
    "group norm": same("f32[2, 6, 5, 4]", "group_norm(%x, %w, %b, groups=2, eps=1e-05)", "%w: f32[6]", "%b: f32[6]"),
    "group norm of channels that are neighbours": same(
        "f32[2, 16, 5, 4]{320, 1, 64, 16}", "group_norm(%x, %w, %b, groups=2, eps=1e-05)", "%w: f32[16]", "%b: f32[16]"
    ),
    "instance norm": same("f32[2, 3, 5, 4]", "instance_norm(%x, eps=1e-05)"),
    "L2 normalisation of columns": same("f32[2, 16, 5]", "l2_normalize(%x, axis=1, eps=1e-12)"),
}


@pytest.mark.parametrize("name", PER_ELEMENT)
def test_results_of_every_element_are_right(name: str) -> None:
    text = PER_ELEMENT[name]
    assert_right(text, "gpu.rows", 4e-2 if "bf16" in text else 4e-3 if "f16" in text else 1e-4)


LARGE_MEANS = {
    "layer norm of a part of a warp": same("f32[3, 40]", "layer_norm(%x, eps=0.0)"),
    "layer norm of a block": same("f32[3, 1000]", "layer_norm(%x, eps=0.0)"),
    "layer norm of a row that is read again": same("f32[2, 20000]", "layer_norm(%x, eps=0.0)"),
    "group norm of channels that are neighbours": same(
        "f32[2, 16, 5, 4]{320, 1, 64, 16}", "group_norm(%x, groups=2, eps=0.0)"
    ),
    "group norm in steps": same("f32[1, 2, 100, 100]", "group_norm(%x, groups=1, eps=0.0)"),
    "layer norm in steps, whose last part is shorter": same("f32[1, 40001]", "layer_norm(%x, eps=0.0)"),
    "channels-last group norm in steps, whose last part is shorter": same(
        "f32[1, 16, 61, 67]{65392, 1, 1072, 16}", "group_norm(%x, groups=1, eps=0.0)"
    ),
    "channels-last group norm in pieces, whose last part is shorter": same(
        "f32[1, 16, 61, 67]{65392, 1, 1072, 16}", "group_norm(%x, groups=2, eps=0.0)"
    ),
    "variance": graph("f32[5, 100]", "f32[5]", "var(%x, axes=[1], keepdim=False, correction=1)"),
    "deviation of columns": graph("f32[70, 24]", "f32[24]", "std(%x, axes=[0], keepdim=False, correction=1)"),
}


@pytest.mark.parametrize("name", LARGE_MEANS)
def test_a_mean_that_is_large_beside_the_deviation_costs_no_digits(name: str) -> None:
    """red-team.md finding 7."""
    text = LARGE_MEANS[name]
    shape = [int(extent) for extent in text[text.index("[") + 1 : text.index("]")].split(",")]
    x = (np.random.default_rng(1).standard_normal(shape) + 1e6).astype(np.float32)
    assert_right(text, "gpu.rows", 1e-6, {"x": x})


REDUCTIONS = {
    "sum": graph("f32[3, 70]", "f32[3]", "sum(%x, axes=[1], keepdim=False)"),
    "sum of columns": graph("f32[70, 3]", "f32[3]", "sum(%x, axes=[0], keepdim=False)"),
    "sum of columns, several a thread": graph("f32[700, 24]", "f32[24]", "sum(%x, axes=[0], keepdim=False)"),
    "sum of several axes": graph("f32[2, 9, 11]", "f32[2]", "sum(%x, axes=[1, 2], keepdim=False)"),
    "sum of axes around": graph("f32[5, 3, 7]", "f32[3]", "sum(%x, axes=[0, 2], keepdim=False)"),
    "sum in two steps": graph("f32[2, 5000]", "f32[2]", "sum(%x, axes=[1], keepdim=False)"),
    "mean of everything in two steps": graph("f16[100, 101]", "f16[]", "mean(%x, axes=[0, 1], keepdim=False)"),
    "maximum": graph("f16[5, 64]", "f16[5]", "amax(%x, axes=[1], keepdim=False)"),
    "product of integers": graph("i32[5, 33]", "i64[5]", "prod(%x, axes=[1], keepdim=False)"),
    "channels-last group norm in pieces, whose last part is shorter": same(
        "f32[1, 16, 61, 67]{65392, 1, 1072, 16}", "group_norm(%x, groups=2, eps=0.0)"
    ),
    "variance": graph("f32[5, 100]", "f32[5]", "var(%x, axes=[1], keepdim=False, correction=1)"),
    "variance and mean": """
    graph g(%x: f32[5, 33]):
      %0: f32[5], %1: f32[5] = var_mean(%x, axes=[1], keepdim=False, correction=1)
      return %0, %1
    """,
    "deviation and mean of columns, whose axis stays": """
    graph g(%x: f32[4, 6, 8]):
      %0: f32[1, 6, 8], %1: f32[1, 6, 8] = std_mean(%x, axes=[0], keepdim=True, correction=1)
      return %0, %1
    """,
    "deviation and mean of everything, whose axes stay, rounded": """
    graph g(%x: f16[1, 33]):
      %0: f16[1, 1], %1: f16[1, 1] = std_mean(%x, axes=[0, 1], keepdim=True, correction=1)
      return %0, %1
    """,
    "moments of channels": """
    graph g(%x: f32[4, 6, 9]):
      %0: f32[6], %1: f32[6], %2: f32[6], %3: f32[6] = moments(%x, axes=[0, 2], keepdim=False)
      return %0, %1, %2, %3
    """,
    "log of a sum of exponentials": graph("f32[5, 100]", "f32[5]", "logsumexp(%x, axes=[1], keepdim=False)"),
    "any of bools": graph("bool[5, 100]", "bool[5, 1]", "any(%x, axes=[1], keepdim=True)"),
    "any of halves": graph("f16[5, 100]", "bool[5]", "any(%x, axes=[1], keepdim=False)"),
    "average of an image": graph(
        "f16[2, 16, 7, 7]{784, 1, 112, 16}", "f16[2, 16, 1, 1]", "adaptive_avg_pool(%x, size=[1, 1])"
    ),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_right(name: str) -> None:
    assert_right(REDUCTIONS[name], "gpu.rows", 4e-3 if "f16" in REDUCTIONS[name] else 1e-4)


WALKED = {
    "softmax": same("f16[19, 2000]", "softmax(%x, axis=-1)"),
    "layer norm": same("bf16[18, 2048]", "layer_norm(%x, %w, %b, eps=1e-05)", "%w: bf16[2048]", "%b: bf16[2048]"),
    "RMS norm": same("f32[20, 1536]", "rms_norm(%x, %w, eps=1e-05)", "%w: f32[1536]"),
    "RMS norm of a sum": """
    graph g(%x: f16[19, 2048], %r: f16[19, 2048], %w: f16[2048]):
      %0: f16[19, 2048] = add(%x, %r)
      %1: f16[19, 2048] = rms_norm(%0, %w, eps=1e-05)
      return %1
    """,
    "softmax of rows of several axes": same("f16[3, 6, 2048]", "softmax(%x, axis=-1)"),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", WALKED)
def test_blocks_take_many_long_rows_in_turn_and_copy_the_next_one_meanwhile(
    name: str, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = WALKED[name]
    assert "gpu.copy_async" not in print_module(scheduled_task(text, arch).program.module)
    monkeypatch.setattr(CudaTarget, "multiprocessors", 3)
    monkeypatch.setattr(row_layout, "_RESIDENT", 128)
    printed = print_module(scheduled_task(text, arch).program.module)
    assert printed.index("gpu.copy_async_finish") < printed.index("= load(coming")
    # Where addresses are not multiples of 16 bytes nothing is.
    copies = len(re.findall(r"gpu\.copy_async\"", printed))
    once = {"layer norm": 2, "RMS norm": 1, "RMS norm of a sum": 1}.get(name, 0)
    assert copies == 2 * (2 if "sum" in name else 1) + once
    assert_right(text, "gpu.rows", 3e-2 if "bf16" in text else 4e-3 if "f16" in text else 1e-4, arch=arch)


def spilled(step: ScheduledTask) -> int:
    """Bytes of registers that kernels keep in memory."""
    return sum(cubin.spill_bytes for cubin in compiled_kernels(step, "sm_90a"))


def test_blocks_stay_for_long_rows_unless_they_are_few_or_only_their_sum_is_wanted() -> None:
    def text(call: str, rows: int = 1024, result: str = "bf16[{}, 32768]") -> str:
        step = scheduled_task(graph(f"bf16[{rows}, 32768]", result.format(rows), call), "sm_90a")
        assert all(
            usage.spill_bytes == 0 for cubin in compiled_kernels(step, "sm_90a") for usage in cubin.usage.values()
        )
        return print_module(step.program.module)

    assert '_kernel0", [132],' in text("softmax(%x, axis=-1)")
    assert '_kernel0", [300],' in text("softmax(%x, axis=-1)", 300).replace("[a0]", "[300]")
    assert "gpu.copy_async" not in text("sum(%x, axes=[1], keepdim=False)", result="bf16[{}]")


def test_what_results_of_all_rows_read_is_copied_once_where_it_has_room_beside_the_next_row() -> None:
    def copied(type_: str) -> int:
        """Loads of copies of the scale and the shift."""
        given = (f"%{name}: {type_}[8192]" for name in "wb")
        text = same(f"{type_}[4096, 8192]", "layer_norm(%x, %w, %b, eps=1e-05)", *given)
        return print_module(scheduled_task(text, "sm_90a").program.module).count("load(repeated")

    # 32 elements of each of 1024 threads: 64 KiB a tensor of two bytes, 128 KiB of four.
    assert copied("bf16") == 2 and copied("f32") == 0


@pytest.mark.parametrize(("length", "per_multiprocessor"), [(2048, 16), (4096, 8), (8192, 4), (16384, 2), (32768, 1)])
def test_a_multiprocessor_has_as_many_rows_at_once_as_its_threads_have_registers_for(length, per_multiprocessor):
    text = same(f"bf16[8192, {length}]", "rms_norm(%x, %w, eps=1e-05)", f"%w: bf16[{length}]")
    step = scheduled_task(text, "sm_90a")
    printed = print_module(step.program.module)
    assert f", [{132 * per_multiprocessor}]," in printed and f"min_blocks={per_multiprocessor}" in printed
    assert not spilled(step)


PLACES = {
    "of the largest": graph("f32[5, 64]", "i64[5]", "argmax(%x, axes=[1], keepdim=False)"),
    "of the smallest half": graph("f16[5, 1000]", "i64[5]", "argmin(%x, axes=[1], keepdim=False)"),
    "in columns": graph("f32[40, 12]", "i64[12]", "argmax(%x, axes=[0], keepdim=False)"),
    "in columns of many rows": graph("f32[900, 8]", "i64[8]", "argmax(%x, axes=[0], keepdim=False)"),
    "in everything": graph("f32[70, 90]", "i64[]", "argmax(%x, axes=[0, 1], keepdim=False)"),
}


@pytest.mark.parametrize("size", [7, 3])
def test_windows_of_several_lengths_are_not_read_beyond_the_image(size: int) -> None:
    """The longest window has elements that others have not: those of the last one would lie behind the tensor."""
    given, result = "f32[1, 1, 100, 100]", f"f32[1, 1, {size}, {size}]"
    assert_right(graph(given, result, f"adaptive_avg_pool(%x, size=[{size}, {size}])"), "gpu.reduce", 1e-5)


@pytest.mark.parametrize("n", [0, 5])
def test_the_length_of_rows_in_parts_may_be_0(n: int) -> None:
    text = "symbol n: 0..1000000\n" + graph("f32[n, 64]", "f32[64]", "sum(%x, axes=[0], keepdim=False)")
    assert_right(text, "gpu.rows", 1e-5, sizes={"n": n})


@pytest.mark.parametrize("name", PLACES)
def test_places_of_extremes_are_right(name: str) -> None:
    assert_right(PLACES[name], "gpu.rows", 0)


def test_the_first_of_equals_and_the_first_undefined_element_are_found_in_parts() -> None:
    x = np.zeros((3, 9000), np.float32)
    x[0, [77, 8000]], x[1, [10, 5000]] = np.nan, 3
    text = """
    graph g(%x: f32[3, 9000]):
      %0: f32[3], %1: i64[3] = max_with_index(%x, axis=1, keepdim=False)
      return %0, %1
    """
    assert_right(text, "gpu.rows", 0, {"x": x})


FUSED = """
graph g(%x: f16[5, 96], %y: f16[5, 96], %w: f16[96], %r: f16[5, 96]):
  %0: f16[5, 96] = add(%x, %y)
  %1: f16[5, 96] = rms_norm(%0, %w, eps=1e-06)
  %2: f16[5, 96] = add(%1, %r)
  %3: f16[5, 96] = relu(%2)
  return %3
"""
MASKED = """
graph g(%x: f32[4, 40], %m: bool[4, 40]):
  %0: f32[] = full(value=-1e30, shape=[], dtype=f32)
  %1: f32[4, 40] = where(%m, %x, %0)
  %2: f32[4, 40] = softmax(%1, axis=-1)
  return %2
"""


def test_what_is_fused_around_a_norm_is_right() -> None:
    assert_right(FUSED, "gpu.rows", 8e-3)
    assert len(sources_of(FUSED)) == 1, "calls copy what is not aligned"
    assert len(sources_of(FUSED, is_aligned=False)) == 2, "one kernel for aligned addresses and one for others"


def test_a_masked_softmax_is_right_and_reads_16_bytes() -> None:
    assert_right(MASKED, "gpu.rows", 1e-4)
    assert "Lanes<float, 4>" in sources_of(MASKED)[0]


EMBEDDED = """
graph g(%words: f16[50, 64], %ids: i64[3, 20], %places: f16[20, 64], %g: f16[64], %b: f16[64]):
  %0: f16[3, 20, 64] = embedding(%words, %ids)
  %1: f16[3, 20, 64] = add(%0, %places)
  %2: f16[3, 20, 64] = layer_norm(%1, %g, %b, eps=1e-05)
  return %2
"""


def test_rows_of_a_table_that_positions_choose_are_read_along_the_row() -> None:
    """Positions lie beside each other, and are of different rows."""
    ids = np.random.default_rng(2).integers(0, 50, (3, 20))
    assert_right(EMBEDDED, "gpu.rows", 8e-3, {"ids": ids})
    (first,) = sources_of(EMBEDDED)
    assert "Lanes<f16, 8>" in first


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinite_and_undefined_elements_are_as_defined(value: float) -> None:
    x = np.linspace(-1, 1, 210, dtype=np.float32).reshape(3, 70)
    x[1, 5] = value
    assert_right(PER_ELEMENT["softmax of an odd length"], "gpu.rows", 1e-5, {"x": x})
    x[2] = value
    assert_right(PER_ELEMENT["softmax of an odd length"], "gpu.rows", 1e-5, {"x": x})


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -3.3e38])
def test_a_softmax_of_16_bits_is_as_defined_where_rows_are_infinite_undefined_or_masked(value: float, dtype) -> None:
    text = same(f"{dtype}[4, 72]", "softmax(%x, axis=-1)")
    assert any("gpu_exp2_approx" in source for source in sources_of(text))
    given = dtypes.dtype(dtype)
    x = np.linspace(-1, 1, 288).reshape(4, 72)
    x[1, 5] = x[2] = x[3] = value
    x[3, 7] = 80.0
    with np.errstate(over="ignore"):
        x = x.astype(given.numpy())
    assert_right(text, "gpu.rows", 2**-8 if dtype == "bf16" else 2**-11, {"x": x})


def test_the_smallest_numbers_of_a_softmax_of_bf16_are_kept() -> None:
    """2 ** -133 is the smallest one, far below what the hardware's powers of two reach."""
    text = same("bf16[2, 64]", "softmax(%x, axis=-1)")
    x = np.zeros((2, 64), dtypes.bf16.numpy())
    x[0, 1:], x[1, 1:] = np.linspace(-80, -92, 63), -100.0
    (found,) = run_text(text, {"x": x})
    wanted = np.exp(x.astype(np.float64))
    unit = np.maximum(wanted * 2.0**-8, 2.0**-133)
    assert np.all(np.abs(found.astype(np.float64) - wanted) <= unit)
    assert np.count_nonzero(found[0].astype(np.float64)) > np.count_nonzero(wanted[0] >= 2.0**-126)


FEW_LONG = {
    "softmax": same("f32[2, 70000]", "softmax(%x, axis=-1)"),
    "softmax of an odd length": same("f32[1, 40001]", "softmax(%x, axis=-1)"),
    "layer norm": same("f16[1, 81920]", "layer_norm(%x, %w, %b, eps=1e-05)", "%w: f16[81920]", "%b: f16[81920]"),
    "channels-last group norm": same(
        "f32[1, 16, 64, 64]{65536, 1, 1024, 16}", "group_norm(%x, %w, groups=1, eps=1e-05)", "%w: f32[16]"
    ),
    "group norm of pieces shorter than a line": same(
        "f16[4, 20, 64, 64]{81920, 1, 1280, 20}", "group_norm(%x, %w, groups=2, eps=1e-05)", "%w: f16[20]"
    ),
    "variance of columns": graph("f32[3000, 8]", "f32[8]", "var(%x, axes=[0], keepdim=False, correction=1)"),
}


@pytest.mark.parametrize("name", FEW_LONG)
@pytest.mark.thorough(every=2)
def test_few_long_rows_are_worked_on_by_many_blocks(name: str) -> None:
    assert_right(FEW_LONG[name], "gpu.rows", 2e-3 if "f16" in FEW_LONG[name] else 1e-5)
    (step,) = schedule_text(FEW_LONG[name]).steps
    assert isinstance(step, ScheduledTask)
    assert step.program.scratch


def test_a_mean_and_the_variance_about_it_are_made_of_parts_in_the_same_steps() -> None:
    text = same("f32[1, 40000]", "layer_norm(%x, eps=1e-05)")
    kernels: list[int] = []
    for is_aligned in (True, False):
        (step,) = schedule_text(text, is_aligned=is_aligned).steps
        assert isinstance(step, ScheduledTask)
        nodes = [node for function in step.program.module.functions for node in walk(function.body)]
        kernels.append(len({node.kernel for node in nodes if isinstance(node, Launch)}))
    assert kernels == [3, 3 + 2], (
        "of parts, of rows, of elements; parts and elements are read one by one as well where they may lie anywhere"
    )


def test_whole_blocks_keep_long_rows_of_halves() -> None:
    text = same("f16[4, 20, 64, 64]", "group_norm(%x, groups=2, eps=1e-05)")
    assert_right(text, "gpu.rows", 4e-3)
    (step,) = schedule_text(text, "sm_90a").steps
    assert isinstance(step, ScheduledTask)
    assert not step.program.scratch
    assert_compiles(text, "sm_90a")


def test_rows_in_pieces_are_read_along_the_neighbours_of_all_rows() -> None:
    text = FEW_LONG["group norm of pieces shorter than a line"]
    (step,) = schedule_text(text, "sm_90a").steps
    assert isinstance(step, ScheduledTask)
    first = print_module(step.program.module).split("@kernel")[1]
    assert "[i0 * x0_stride0 + first + (part" in first and "f16x4)" in first
    assert_compiles(text, "sm_90a")


@pytest.mark.parametrize("length", [1, 70, 2100])
def test_rows_in_pieces_may_have_any_number_of_them(length: int) -> None:
    text = same("f32[2, 16, t]{16*t, 1, 16}", "group_norm(%x, groups=2, eps=1e-05)")
    (step,) = schedule_text(f"symbol t: 1.. hint 4096\n{text}").steps
    assert isinstance(step, ScheduledTask) and step.program.scratch
    assert_right(f"symbol t: 1.. hint 4096\n{text}", "gpu.rows", 1e-4, sizes={"t": length})


def test_many_rows_longer_than_registers_are_read_again() -> None:
    many = same("f32[200, 40000]", "softmax(%x, axis=-1)")
    assert "part[4]" in sources_of(many)[0]
    symbolic = "symbol s: 1.. hint 200\n" + many.replace("[200,", "[s,")
    assert_right(symbolic, "gpu.rows", 1e-4, sizes={"s": 1})


SYMBOLS = "symbol s: 1.. hint 64\nsymbol t: 1.. hint 512\n"
SYMBOLIC = {
    "softmax": (same("f32[s, t]", "softmax(%x, axis=-1)"), [(3, 70), (1, 520), (1, 2500)]),
    "sum": (graph("f32[s, t]", "f32[s]", "sum(%x, axes=[1], keepdim=False)"), [(3, 70), (2, 1500)]),
    "sum of columns": (graph("f32[s, t]", "f32[t]", "sum(%x, axes=[0], keepdim=False)"), [(70, 3), (9, 130)]),
    "sum of everything": (graph("f32[s, t]", "f32[]", "sum(%x, axes=[0, 1], keepdim=False)"), [(3, 70), (1, 1)]),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_one_program_serves_rows_of_any_length(name: str) -> None:
    text, shapes = SYMBOLIC[name]
    for s, t in shapes:
        assert_right(SYMBOLS + text, "gpu.rows", 1e-4, sizes={"s": s, "t": t})


def test_boundaries_before_a_value_are_counted_by_a_warp() -> None:
    text = "graph g(%b: f32[300], %x: f32[7]):\n  %0: i64[7] = searchsorted(%b, %x)\n  return %0\n"
    boundaries = np.sort(np.random.default_rng(0).standard_normal(300).astype(np.float32))
    assert_right(text, "gpu.reduce_products", 0.0, {"b": boundaries})


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.thorough(every=3)
def test_long_rows_compile_without_spills(arch: str) -> None:
    for columns in (768, 4096, 32768):
        assert_compiles(same(f"bf16[4096, {columns}]", "softmax(%x, axis=-1)"), arch)
    assert_compiles(same("bf16[64, 128256]", "log_softmax(%x, axis=-1)"), arch)
    assert_compiles(FUSED.replace("96", "8192"), arch)
    assert_compiles(FUSED.replace("5, 96", "1024, 32768").replace("96", "32768"), arch)
    assert_compiles(same("f64[1024, 16384]", "softmax(%x, axis=-1)"), arch)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_reductions_compile_without_spills(arch: str) -> None:
    assert_compiles(graph("bf16[4096, 4096]", "bf16[]", "sum(%x, axes=[0, 1], keepdim=False)"), arch)
    assert_compiles(graph("f16[100352, 64]", "f16[64]", "sum(%x, axes=[0], keepdim=False)"), arch)


@pytest.mark.parametrize(("resident", "threads"), [(1, 32), (3, 64), (1024, 128)])
def test_rows_whose_number_a_call_tells_are_shared_by_as_many_threads_as_that_leaves(
    resident: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    norm = "layer_norm(%x, %w, %b, eps=1e-05)"
    text = f"symbol m: 1.. hint 300\n{same('f16[m, 768]', norm, '%w: f16[768]', '%b: f16[768]')}"
    monkeypatch.setattr(row_layout, "_RESIDENT", resident)
    assert_right(text, "gpu.rows", 4e-3, sizes={"m": 6})
    known = same("f16[6, 768]", norm, "%w: f16[768]", "%b: f16[768]")
    (step,) = schedule_text(known).steps
    assert isinstance(step, ScheduledTask)
    assert step.decision.params.threads == threads  # type: ignore[attr-defined]
    (own,) = schedule_text(text).steps
    assert isinstance(own, ScheduledTask)
    entry = own.program.module.function(own.program.module.entry)
    assert sum(isinstance(node, Launch) for node in walk(entry.body)) == 3
