"""What is computed from parameters by the same operators is one task, and what has the same code one launch."""

from __future__ import annotations

import pytest

from hidet.cuda.testing.schedules import assert_compiles, assert_right, schedule_text, sources_of
from hidet.gpu.schedules import horizontal
from hidet.ir.stmt import Launch
from hidet.ir.visit import walk
from hidet.schedule.select import ScheduledTask


def filters(*counts: int, channels: int = 8) -> str:
    """Filters that are brought into the order of their channels."""
    given = ", ".join(f"param %w{n}: f16[{count}, {channels}, 3, 3]" for n, count in enumerate(counts))
    lines = [
        f"  %c{n}: f16[{count}, {channels}, 3, 3]{{{9 * channels}, 1, {3 * channels}, {channels}}} = copy(%w{n})\n"
        for n, count in enumerate(counts)
    ]
    results = ", ".join(f"%c{n}" for n in range(len(counts)))
    return f"graph g({given}):\n{''.join(lines)}  return {results}\n"


NORMS = """
graph g(param %v0: f32[8], param %g0: f32[8], param %v1: f32[13], param %g1: f32[13], param %v2: f32[8], %x: f32[13]):
  %0: f32[8] = mul(%v0, %g0)
  %1: f32[13] = mul(%v1, %g1)
  %2: f32[8] = mul(%v2, %g0)
  %3: f32[13] = mul(%v1, %x)
  return %0, %1, %2, %3
"""


def steps(text: str) -> list[ScheduledTask]:
    return [step for step in schedule_text(text).steps if isinstance(step, ScheduledTask)]


def launches(step: ScheduledTask) -> int:
    return sum(
        isinstance(node, Launch) for f in step.program.module.functions if f.kind == "host" for node in walk(f.body)
    )


def test_filters_of_all_sizes_are_copied_by_one_launch() -> None:
    text = filters(4, 6, 5, 4)
    (step,) = steps(text)
    assert len(step.task.outputs) == 4
    assert launches(step) == 1
    assert_right(text, "gpu.elementwise", 0)


def test_filters_of_an_odd_number_of_channels_are_copied_element_by_element() -> None:
    assert_right(filters(4, 6, channels=7), "gpu.elementwise", 0)


def test_filters_are_read_and_written_16_bytes_at_once() -> None:
    wide, narrow = sources_of(filters(64, 128, channels=64), is_aligned=False)
    reads = [line for line in wide.splitlines() if "held + " in line and "x0" in line]
    assert len(reads) == 9 and all("= *(Lanes<f16, 8>*)" in line for line in reads)
    assert "store_global(result" in wide
    assert "Lanes" not in narrow
    assert_compiles(filters(64, 128, channels=64), "sm_90a")


def test_neighbours_are_written_16_bytes_at_once_though_they_are_read_apart() -> None:
    wide, narrow = sources_of(
        filters(64, 128, channels=64).replace(
            "param %w0: f16[64, 64, 3, 3]", "param %w0: f16[64, 64, 3, 3]{592, 9, 3, 1}"
        )
    )
    assert "*(Lanes<f16, 8>*)" in wide
    assert "Lanes" not in narrow


def test_tasks_of_parameters_are_joined_and_those_of_other_inputs_are_not() -> None:
    assert [len(step.task.outputs) for step in steps(NORMS)] == [3, 1]
    assert_right(NORMS, "gpu.elementwise", 1e-6)


def test_what_overwrites_a_parameter_is_a_task_of_its_own() -> None:
    text = """
    graph g(param %a: f32[8], param %b: f32[8], param %c: f32[8]):
      %0: f32[8] = add(%a, %b)
      %1: f32[8] = add(%c, %b)
      return %0, %1
      mutates 0 <- 0
    """
    assert [len(step.task.outputs) for step in steps(text)] == [1, 1]


def test_a_launch_has_no_more_kernels_than_its_parameters_have_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizontal, "_MOST", 2)
    text = filters(4, 6, 5, 4, 3)
    (step,) = steps(text)
    assert launches(step) == 3
    assert_right(text, "gpu.elementwise", 0)


def test_outputs_with_code_of_their_own_are_launches_of_their_own() -> None:
    text = """
    graph g(param %a: f32[8, 3], param %b: f32[5, 1]):
      %0: f32[8, 3] = relu(%a)
      %1: f32[5, 1] = relu(%b)
      return %0, %1
    """
    (step,) = steps(text)
    assert len(step.task.outputs) == 2
    assert_right(text, "gpu.elementwise", 0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_forty_filters_compile_without_spills(arch: str) -> None:
    assert_compiles(filters(*(64 * (1 + n % 5) for n in range(40)), channels=64), arch)
