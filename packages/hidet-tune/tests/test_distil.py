"""A store becomes decisions over sizes, held against it; decisions become a wheel, which compilations follow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hidet.cli import main
from hidet.compiler.lowering import lower_graph
from hidet.context import CompileContext, make_context
from hidet.errors import OptionError, PluginWarning
from hidet.graph.parser import parse_graph
from hidet.passes.manager import run_graph_passes
from hidet.plugins import PLUGIN_API, use
from hidet.plugins.host import load_registry
from hidet.schedule.claims import claims
from hidet.schedule.select import ScheduledTask
from hidet.schedule.shortlist import space_of
from hidet.tuning.distil import Example, distil, grow
from hidet.tuning.distil_choice import Decision, If, choose, named_sizes
from hidet.tuning.distil_pack import decisions_text, write_pack
from hidet.tuning.meaning import Meaning, meaning_of
from hidet.tuning.store import Entry, Store
from hidet.tuning.strategy import Measurement
from hidet.tuning.strategy_history import History

DEFAULT, SMALL, LARGE = "Tile(32)", "Tile(8)", "Tile(128)"


def entry(columns: int, params: str, gain: float = 1.5, **given: str) -> Entry:
    meaning = Meaning("ab12", f"f32[64, {columns}], f32[64, {columns}]", "cpu x", "cpu.softmax", "1.0")
    seconds = 1e-6 if params == DEFAULT else 1e-6 / gain
    return Entry(replace(meaning, **given), f"softmax(f32[64, {columns}])", params, DEFAULT, 1e-6, seconds, 2, 2)


@pytest.fixture
def store(tmp_path: Path) -> History:
    return History(tmp_path / "choices.sqlite")


def test_sizes_get_names_and_element_types_and_strides_do_not() -> None:
    assert named_sizes("f32[8, 64]{64, 1}, i64[]@cuda:1, f8e4m3[7]") == (
        "f32[s0, s1]{}, i64[]@cuda:1, f8e4m3[s2]",
        {"s0": 8, "s1": 64, "s2": 7},
    )


def test_a_question_tells_apart_what_was_chosen_for_small_and_for_large_tasks(store) -> None:
    store.put([entry(columns, SMALL if columns <= 512 else LARGE) for columns in (64, 128, 512, 1024, 4096)])
    (found,) = distil(store)
    assert found.decision.tree == If("s1", 724, SMALL, LARGE)
    assert found.decision.sizes == {"s0": (64, 64), "s1": (64, 4096), "s2": (64, 64), "s3": (64, 4096)}
    assert (found.tasks, found.reproduced, found.loss) == (5, 5, 0.0)
    assert found.gain == pytest.approx(1.5) and found.kept == pytest.approx(1.5)


def test_the_tree_follows_what_costs_time_and_not_what_costs_none(store) -> None:
    entries = [entry(columns, SMALL) for columns in (64, 128, 256)] + [entry(512, LARGE, gain=1.03)]
    store.put(entries)
    store.add(entries[-1].meaning, [Measurement((), {}, 0.975, SMALL)])
    (found,) = distil(store)
    assert found.decision.tree == SMALL
    assert (found.reproduced, found.tasks) == (3, 4)
    assert found.loss == pytest.approx((0.975 * 1.03) ** 0.25 - 1)


def test_a_point_that_nobody_measured_is_not_taken_to_be_fast(store) -> None:
    store.put([entry(64, SMALL), entry(128, DEFAULT), entry(256, DEFAULT)])
    (found,) = distil(store)
    assert found.decision.tree == If("s1", 91, SMALL, None)


def test_rules_machines_and_kinds_of_tensors_have_decisions_of_their_own(store) -> None:
    store.put([entry(64, SMALL), entry(64, LARGE, rule="cpu.rows"), entry(64, LARGE, arch="cpu y")])
    store.put([entry(64, LARGE, sizes="bf16[64], bf16[64]"), entry(64, DEFAULT, rule="cpu.nothing")])
    found = {
        (each.decision.rule, each.decision.arch, each.decision.tensors): each.decision.tree for each in distil(store)
    }
    assert found == {
        ("cpu.softmax", "cpu x", "f32[s0, s1], f32[s2, s3]"): SMALL,
        ("cpu.rows", "cpu x", "f32[s0, s1], f32[s2, s3]"): LARGE,
        ("cpu.softmax", "cpu y", "f32[s0, s1], f32[s2, s3]"): LARGE,
        ("cpu.softmax", "cpu x", "bf16[s0], bf16[s1]"): LARGE,
    }


def test_tasks_that_were_left_out_show_how_far_a_tree_carries(store) -> None:
    store.put([entry(columns, SMALL if columns <= 512 else LARGE) for columns in range(64, 1025, 64)])
    (smooth,) = distil(store)
    store.clear()
    store.put([entry(columns, SMALL if columns % 128 else LARGE) for columns in range(64, 1025, 64)])
    (rough,) = distil(store)
    assert smooth.left_out < 0.05 < rough.left_out


def test_trees_stay_small() -> None:
    def depth(tree: object) -> int:
        return 1 + max(depth(tree.then), depth(tree.otherwise)) if isinstance(tree, If) else 0

    def example(number: int) -> Example:
        answer = f"Tile({number})"
        return Example("", {"s0": 2**number}, DEFAULT, answer, {None: 1.0, DEFAULT: 1.0, answer: 0.5})

    assert depth(grow([example(number) for number in range(40)])) == 4


def test_far_from_what_was_measured_the_rule_chooses_by_itself() -> None:
    decision = Decision(rule="r", version="", arch="", tensors="f32[s0]", sizes={"s0": (64, 512)}, tree=SMALL)
    assert [decision.answer({"s0": size}) for size in (16, 31, 32, 1024, 1025)] == [None, None, SMALL, SMALL, None]


def test_decisions_are_python_that_says_where_they_come_from(store) -> None:
    store.put([entry(columns, SMALL if columns <= 512 else LARGE) for columns in (64, 512, 1024)])
    text = decisions_text(distil(store))
    names: dict[str, object] = {}
    exec(text, names)
    assert names["DECISIONS"] == tuple(each.decision for each in distil(store))
    assert "# 3 tasks, such as softmax(f32[64, 1024]), softmax(f32[64, 512])," in text
    assert "# 3 get what was measured to be the best; 1.50 times as fast as by default." in text


@pytest.mark.parametrize(
    ("folder", "message"),
    [("my pack", "which no package can be"), ("full", "is not empty"), ("empty", "nothing in the")],
)
def test_a_pack_that_cannot_be_written_says_why(store, tmp_path, folder, message) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    store.put([entry(64, DEFAULT if folder == "empty" else SMALL)])
    with pytest.raises(OptionError, match=message):
        write_pack(distil(store), tmp_path / folder)


# ---- compilations that follow decisions ------------------------------------------------------------------------------


def softmax_step(columns: int, ctx: CompileContext) -> ScheduledTask:
    """The softmax of 64 rows, scheduled."""
    text = f"graph g(%x: f32[64, {columns}]):\n  %0: f32[64, {columns}] = softmax(%x, axis=1)\n  return %0\n"
    graph = parse_graph(text, load_registry().operators)
    lowered = lower_graph(run_graph_passes(graph, ctx), graph, ctx)
    (step,) = [step for scheduled in lowered.main for step in scheduled.steps if isinstance(step, ScheduledTask)]
    return step


def softmax_context(store: str = "off") -> CompileContext:
    return make_context("cpu", {"threads": 1, "tune.store": store})


@dataclass(frozen=True)
class Softmax:
    """Parameters that `cpu.softmax` takes by itself, and two others of its space."""

    default: str
    small: str
    large: str


@pytest.fixture(scope="module")
def softmax() -> Softmax:
    ctx = softmax_context()
    step = softmax_step(256, ctx)
    claim = next(claim for claim in claims(step.task, ctx, []) if claim.spec.name == step.rule_name)
    default = repr(claim.rule.default(claim.match, ctx))
    small, *_, large = [text for text in map(repr, space_of(claim.rule, claim.match, ctx)) if text != default]
    return Softmax(default, small, large)


def softmax_entry(columns: int, params: str, default: str) -> Entry:
    """What tuning the softmax of so many columns finds."""
    ctx = softmax_context()
    step = softmax_step(columns, ctx)
    meaning = meaning_of(step.task, step.rule_name, ctx)
    assert meaning is not None
    return Entry(meaning, step.task.summary, params, default, 1e-6, 5e-7, 2, 2)


def params_with(decision: Decision, columns: int, store: str = "off") -> str:
    """Which parameters a softmax has where a plug-in follows a decision."""

    class Follows:
        HIDET_API = PLUGIN_API

        def hidet_choose_schedule(self, task, candidates, ctx):
            return choose((decision,), task, candidates, ctx)

    with use(Follows):
        return repr(softmax_step(columns, softmax_context(store)).decision.params)


@pytest.fixture(scope="module")
def decision(softmax: Softmax) -> Decision:
    meaning = softmax_entry(256, softmax.small, softmax.default).meaning
    tensors, sizes = named_sizes(meaning.sizes)
    return Decision(
        rule=meaning.rule,
        version=meaning.version,
        arch=meaning.arch,
        tensors=tensors,
        sizes={name: (size, size) for name, size in sizes.items()},
        tree=softmax.small,
    )


def test_compilations_follow_a_decision_for_sizes_near_the_measured_ones(decision, softmax) -> None:
    found = [params_with(decision, columns) for columns in (256, 500, 4096)]
    assert found == [softmax.small, softmax.small, softmax.default]


@pytest.mark.parametrize("change", [{"arch": "cpu of another"}, {"rule": "cpu.other"}, {"tree": "no such parameters"}])
def test_what_a_decision_is_not_for_stays_with_the_rule(decision, softmax, change) -> None:
    assert params_with(replace(decision, **change), 256) == softmax.default


def test_a_decision_for_another_version_is_not_followed_and_says_so(decision, softmax) -> None:
    with pytest.warns(PluginWarning, match=r"distilled for version '0\.0\.1' of its wheel, and '.*' is installed"):
        assert params_with(replace(decision, version="0.0.1"), 256) == softmax.default


def test_what_a_store_has_measured_comes_first(decision, softmax, tmp_path) -> None:
    path = tmp_path / "choices.sqlite"
    Store(path).put([softmax_entry(256, softmax.default, softmax.default)])
    with warnings.catch_warnings():
        assert params_with(decision, 256, str(path)) == softmax.default
        assert params_with(decision, 500, str(path)) == softmax.small


FOLLOW = """
import json, sys
from hidet.compiler.lowering import lower_graph
from hidet.context import make_context
from hidet.graph.parser import parse_graph
from hidet.passes.manager import run_graph_passes
from hidet.schedule.select import ScheduledTask

found = []
for columns in map(int, sys.argv[1:]):
    ctx = make_context("cpu", {"threads": 1, "tune.store": "off"})
    text = f"graph g(%x: f32[64, {columns}]):\\n  %0: f32[64, {columns}] = softmax(%x, axis=1)\\n  return %0\\n"
    graph = parse_graph(text, ctx.registry.operators)
    lowered = lower_graph(run_graph_passes(graph, ctx), graph, ctx)
    found += [repr(s.decision.params) for g in lowered.main for s in g.steps if isinstance(s, ScheduledTask)]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_store_becomes_a_wheel_whose_choices_are_taken_where_it_is_installed(
    store, softmax, tmp_path, install_wheel
) -> None:
    best = {columns: softmax.small if columns <= 512 else softmax.large for columns in (128, 512, 2048)}
    store.put([softmax_entry(columns, params, softmax.default) for columns, params in best.items()])
    pack = tmp_path / "my_pack"
    done = CliRunner().invoke(main, ["tune", "distil", str(store.path), "-o", str(pack)])
    assert done.exit_code == 0, done.output
    assert (
        "cpu.softmax on f32[s0, s1], f32[s2, s3]: 3 of 3 tasks as measured, 2.00 of 2.00 times as fast" in done.output
    )
    assert (
        "| cpu.softmax | `f32[s0, s1], f32[s2, s3]` | 3 | 3 | 2.00 | 2.00 | 0.0% |" in (pack / "README.md").read_text()
    )
    site = install_wheel(pack)
    command = [sys.executable, "-c", FOLLOW, "128", "300", "1500", "16384"]
    followed = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True)
    assert json.loads(followed.stdout) == [softmax.small, softmax.small, softmax.large, softmax.default], (
        followed.stderr
    )


def test_exported_lines_become_a_wheel_too(store, tmp_path) -> None:
    store.put([entry(columns, SMALL if columns <= 512 else LARGE) for columns in (64, 512, 1024)])
    lines = tmp_path / "choices.jsonl"
    lines.write_text("\n".join(store.export_lines()))
    texts = []
    for number, source in enumerate((store.path, lines)):
        done = CliRunner().invoke(main, ["tune", "distil", str(source), "-o", str(tmp_path / f"pack{number}")])
        assert done.exit_code == 0, done.output
        texts.append((tmp_path / f"pack{number}" / "src" / f"pack{number}" / "decisions.py").read_text())
    assert texts[0] == texts[1]


def test_a_file_that_is_no_store_is_refused(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of that kind")
    done = CliRunner().invoke(main, ["tune", "distil", str(tmp_path / "notes.txt"), "-o", str(tmp_path / "pack")])
    assert done.exit_code != 0 and "line 1 is no tuned choice" in done.output
    assert not (tmp_path / "pack").exists()
