"""`hidet schedules`: what rules say of an operator, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from hidet.cli import main
from hidet.plugins import PLUGIN_API, ScheduleSpec, use
from hidet.schedule.fallback import FallbackRule
from hidet.schedule.space import Constraint, Knob, Space
from hidet.testing.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
SUM = ("--op", "sum", "--shape", "8x100", "--attr", "axes=[1]")
PRODUCT = ("--op", "matmul", "--shape", "64x512,512x256")


MODEL = """
graph layers(%x: f16[8, 64], param %v: f16[64, 64], param %w: f16[64, 64]):
  %0: f16[8, 64] = linear(%x, %v)
  %1: f16[8, 64] = softmax(%0, axis=1)
  %2: f16[8, 64] = linear(%1, %w)
  %3: f16[8, 64] = softmax(%2, axis=1)
  return %3
"""


class Modelled(FallbackRule):
    """A rule with a cost model: a row takes a microsecond, and words are slow."""

    def space(self, match, ctx):
        return Space(
            (
                Knob("rows", (1, 2, 4), "rows of a work item"),
                Knob("words", (False, True), "whether rows are read as words"),
                Knob("lanes", (8,), "neighbours that are added at once"),
            ),
            lambda rows, words, lanes: (rows, words),
            (Constraint("words are of one row", lambda params: not params[1] or params[0] == 1),),
        )

    def default(self, match, ctx):
        """As few rows as there are without words."""
        return 2, False

    def predict(self, match, params, ctx):
        rows, words = params
        return rows * 1e-6 + (1e-3 if words else 0.0)


@pytest.fixture
def modelled() -> Iterator[None]:
    plugin: Any = ModuleType("modelled")
    plugin.HIDET_API = PLUGIN_API
    load = f"{__name__}:Modelled"
    plugin.hidet_schedules = lambda: [ScheduleSpec(name="mine.sum", ops=("sum",), targets=("cpu",), load=load)]
    with use(plugin):
        yield


def run(*arguments: str) -> str:
    """What the command prints, in 100 columns."""
    result = CliRunner().invoke(main, ["schedules", *arguments], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.output.splitlines()) + "\n"


def failure(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["schedules", *arguments])
    assert result.exit_code != 0
    return result.output


def test_points_are_ranked_by_what_the_rule_predicts(modelled: None) -> None:
    shown = run(*SUM, "--target", "cpu:haswell", "--rule", "mine.sum")
    assert_golden(shown, GOLDEN / "schedules_ranked.txt")


def test_why_the_default_won_is_said_in_the_rules_own_words_to_the_end() -> None:
    heads = ",".join(["1x8x128x64"] * 3)
    (task,) = json.loads(run("--op", "attention", "--shape", heads, "--target", "cpu:haswell", "--json"))
    (rule,) = (rule for rule in task["rules"] if rule["rule"] == "cpu.attention")
    assert (
        "as many queries together, or keys of few queries, as the cost model does not expect to be slower than fewer. "
        in rule["why"]
    )


def test_the_default_is_shown_however_it_is_ranked(modelled: None) -> None:
    shown = run(*SUM, "--target", "cpu:haswell", "--rule", "mine.sum", "--most", "1")
    assert shown.splitlines()[-2:] == ["     1     1.0 us  1     no", "    *2     2.0 us  2     no"]


def test_a_space_is_a_table_of_knobs_and_constraints() -> None:
    shown = run("--op", "gelu", "--shape", "2048x4096", "--dtype", "f16", "--target", "cuda:sm_90a")
    # What is predicted follows, which is a matter of the cost model.
    assert_golden(shown.partition("  why: ")[0], GOLDEN / "schedules_gelu.txt")


def test_the_machine_need_not_be_there() -> None:
    shown = run(*PRODUCT, "--dtype", "f16", "--target", "cuda:sm_90a", "--most", "2")
    assert "matmul(f16[64, 512], f16[512, 256]) on cuda:sm_90a" in shown
    assert "cuda.matmul                10  matched, the first: it schedules the task" in shown
    assert "- shared memory holds the stages: 232448 bytes" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_a_rule_that_cannot_take_a_task_says_why() -> None:
    heads = ",".join(["1x2x8x2000"] * 3)
    shown = run("--op", "attention", "--shape", heads, "--target", "cpu:haswell")
    assert "cannot: rows of k or v have 2000 elements, expected at most 1024" in " ".join(shown.split())


def test_one_rule_alone_may_be_shown() -> None:
    shown = run(*PRODUCT, "--dtype", "f16", "--target", "cuda:sm_90a", "--rule", "gpu.matmul")
    assert "gpu.matmul: " in shown
    assert "cuda.matmul: " not in shown


def test_json_has_the_space_the_default_and_the_points(modelled: None) -> None:
    (task,) = json.loads(run(*SUM, "--most", "2", "--json"))
    assert (task["task"], task["rule"], task["uses"]) == ("sum(f32[8, 100])", "mine.sum", 1)
    first = task["rules"][0]
    assert (first["size"], first["valid"], first["constraints"]) == (6, 4, ["words are of one row"])
    assert first["knobs"][1] == {
        "name": "words",
        "values": [False, True],
        "doc": "whether rows are read as words",
    }
    assert first["default"] == {"knobs": {"rows": 2, "words": False, "lanes": 8}, "seconds": 2e-6}
    assert [point["knobs"]["rows"] for point in first["points"]] == [1, 2]
    assert "knobs" not in next(rule for rule in task["rules"] if rule["rule"] == "fallback")


def test_a_model_is_a_line_for_each_task(tmp_path: Path) -> None:
    model = tmp_path / "model.hir"
    model.write_text(MODEL)
    assert_golden(run(str(model), "--target", "cuda:sm_90a"), GOLDEN / "schedules_model.txt")


def test_inputs_may_have_types_of_their_own() -> None:
    looked_up = ("--op", "index_select", "--shape", "30x7,5", "--dtype", "f32,i64", "--attr", "axis=0")
    assert "elementwise(f32[30, 7], i64[5]) on cpu:haswell" in run(*looked_up, "--target", "cpu:haswell")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a model, or an operator"),
        (("--op", "gelu", "--shape", "2y3"), "'2y3' is no shape, expected one such as 64x512"),
        ((*PRODUCT, "--dtype", "f16,f16,i64"), "--dtype names 3 types for 2 inputs"),
        ((*PRODUCT, "--attr", "axis"), "--attr 'axis' has no value"),
        ((*PRODUCT, "--rule", "cpu.mine"), "there is no schedule rule 'cpu.mine'"),
        (("--op", "matmull", "--shape", "2x2,2x2"), "did you mean 'matmul'"),
    ],
)
def test_what_cannot_be_read_is_said(arguments: tuple[str, ...], message: str) -> None:
    assert message in failure(*arguments)
