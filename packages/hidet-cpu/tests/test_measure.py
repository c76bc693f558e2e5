"""Measuring what cost models know of a CPU."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hidet.cli import main
from hidet.context import make_context
from hidet.cpu.arch import arch_from_text
from hidet.cpu.constants import published_constants
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.schedule.device_constants import known_constants
from hidet.schedule.select import select_schedules

PRODUCT = """
graph g(%a: f32[70, 130], %b: f32[130, 90]):
  %0: f32[70, 90] = matmul(%a, %b)
  return %0
"""


@pytest.mark.parametrize(("name", "bits"), [("x86-64-v4", 512), ("x86-64-v3", 256), ("neoverse-v2", 128)])
def test_published_rates_grow_with_vectors_and_shrink_with_distance(name, bits) -> None:
    found = published_constants(arch_from_text(name))
    assert found.fma["float32"] == 2 * found.fma["float64"] == 3e9 * 2 * bits / 32
    rates = [level.core_bandwidth for level in found.levels]
    assert rates == sorted(rates, reverse=True)
    sizes = [level.nbytes for level in found.levels[:-1]]
    assert sizes == sorted(sizes) and found.levels[-1].nbytes == 0


@pytest.mark.parametrize(
    ("name", "fma", "rates"),
    [
        ("znver4", (59.1e9, 29.5e9, 55.3e9), {"L1": 223e9, "L2": 115e9, "L3": 99e9, "memory": 29e9}),
        ("znver5", (139e9, 69.5e9, 138e9), {"L1": 555e9, "L2": 232e9, "L3": 126e9, "memory": 64e9}),
    ],
)
def test_published_rates_of_a_kind_of_core_that_was_measured_are_those(name, fma, rates) -> None:
    """Of EPYCs of the fourth and the fifth generation, by `hidet measure`; a roof below them would have kernels reach
    more than all there is, and one above them, less than they do."""
    found = published_constants(arch_from_text(name))
    assert found.fma == pytest.approx(dict(zip(("float32", "float64", "int32"), fma, strict=True)), rel=0.07)
    assert {level.name: level.core_bandwidth for level in found.levels} == pytest.approx(rates, rel=0.07)


def test_the_command_keeps_what_it_measured_and_compilations_give_the_same_program(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))

    def program() -> tuple[object, ...]:
        ctx = make_context("cpu")
        scheduled = select_schedules(fuse(parse_graph(PRODUCT, ctx.registry.operators), ctx), ctx)
        return [built.program.arguments for built in scheduled.steps], [*scheduled.hashes.values()]

    before = program()
    assert not (tmp_path / "devices").exists()
    result = CliRunner().invoke(main, ["measure", "--json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.output)
    assert shown["is_measured"] and {level["name"] for level in shown["levels"]} == {"L1", "L2", "L3", "memory"}
    found = known_constants(make_context("cpu"))
    assert found is not None and found.is_measured and found.fma == shown["fma"]
    assert program() == before
