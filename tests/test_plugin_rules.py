"""Schedules of plug-ins do not disturb each other: what a rule does not take, and what it does wrong, is its own."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hidet import dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, make_context
from hidet.errors import PluginError, PluginWarning
from hidet.fusion.fuse import fuse
from hidet.graph import Graph, GraphBuilder, TensorType
from hidet.graph.parser import parse_graph
from hidet.schedule.select import ScheduledTask, select_schedules

ATTENTION = """
graph g(%q: f32[1, 2, 8, 16], %k: f32[1, 2, 8, 16], %v: f32[1, 2, 8, 16], %z: f32[1, 2, 8, 16]):
  %0: f32[1, 2, 8, 16] = mul(%q, %z)
  %1: f32[1, 2, 8, 16] = attention(%0, %k, %v)
  %2: f32[1, 2, 8, 16] = mul(%1, %z)
  return %2
"""
NORM = """
graph g(%x: f32[8, 16], %w: f32[16]):
  %0: f32[8, 16] = neg(%x)
  %1: f32[8, 16] = rms_norm(%0, %w, rank=1)
  %2: f32[8, 16] = relu(%1)
  return %2
"""
SOFTMAX = """
graph g(%x: f32[8, 8]):
  %0: f32[8, 8] = softmax(%x, axis=1)
  return %0
"""
RULE = """
    from hidet.plugins import ScheduleSpec
    from hidet.schedule.fallback import FallbackRule

    HIDET_API = 1

    def hidet_schedules():
        yield ScheduleSpec(name="mine.rule", targets=("cpu",), priority=150, {spec})

    class Rule(FallbackRule):
        {code}
"""

Install = Callable[..., CompileContext]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Install:
    """`install(spec, code)`: a context with one rule more. Modules have names of their own, as registries are kept."""

    def installed(spec: str = "", code: str = "pass", *, source: str = RULE, strict: bool = False) -> CompileContext:
        name = f"rules_{abs(hash((request.node.name, spec, code)))}"
        if "load=" not in spec:
            spec = f'load="{name}._plugin:Rule", {spec}'
        (tmp_path / name).mkdir()
        text = textwrap.dedent(source).format(spec=spec, code=code, name=name)
        (tmp_path / name / "_plugin.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("HIDET_STRICT_PLUGINS", "1" if strict else "0")
        monkeypatch.setenv("HIDET_PLUGINS", f"hidet.cpu._plugin,{name}._plugin")
        return make_context("cpu", {"cache": False, "threads": 1})

    return installed


@pytest.fixture
def builtin(monkeypatch: pytest.MonkeyPatch) -> CompileContext:
    monkeypatch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin")
    return make_context("cpu", {"cache": False, "threads": 1})


def graph_of(text: str, ctx: CompileContext) -> Graph:
    return parse_graph(text.lstrip(), ctx.registry.operators)


def tasks(text: str, ctx: CompileContext) -> list[tuple[str, ...]]:
    """For each task the rule and the operators."""
    steps = select_schedules(fuse(graph_of(text, ctx), ctx), ctx).steps
    scheduled = [step for step in steps if isinstance(step, ScheduledTask)]
    return [(step.rule_name, *[node.op.name for node in step.task.nodes]) for step in scheduled]


REFUSES = "def match(self, task, ctx): return None"


@pytest.mark.parametrize(("text", "operator"), [(ATTENTION, "attention"), (NORM, "rms_norm"), (SOFTMAX, "softmax")])
@pytest.mark.parametrize("abilities", ["", 'prologue="load"', 'prologue="gather", epilogue="element-wise"'])
def test_a_rule_that_matches_nothing_changes_nothing(
    install: Install, builtin: CompileContext, text: str, operator: str, abilities: str
) -> None:
    """plugin-friction.md bug 1."""
    expected = tasks(text, builtin)
    assert tasks(text, install(f'ops=("{operator}",), {abilities}', REFUSES)) == expected


def test_a_rule_for_other_types_takes_nothing_from_those_that_it_leaves(
    install: Install, builtin: CompileContext
) -> None:
    """plugin-friction.md bug 1: a rule for f32 that fuses nothing made one f16 task three."""
    half = NORM.replace("f32", "f16")
    expected = tasks(half, builtin)
    single = 'def match(self, task, ctx): return super().match(task, ctx) if "f32" in task.summary else None'
    ctx = install('ops=("rms_norm",)', single)
    assert tasks(half, ctx) == expected
    assert [row[0] for row in tasks(NORM, ctx)].count("mine.rule") == 1
    assert len(tasks(NORM, ctx)) == 3


def test_an_anchor_whose_fused_task_its_rule_refuses_is_cut_until_the_rule_takes_it(install: Install) -> None:
    """plugin-friction.md bug 1: otherwise it would fall to the fallback nest."""
    ctx = install(
        'ops=("attention",), prologue="gather", epilogue="element-wise"',
        "def match(self, task, ctx):\n"
        "        return super().match(task, ctx) if all(p is None for p in task.prologues) else None",
    )
    assert tasks(ATTENTION, ctx) == [("cpu.elementwise", "mul"), ("mine.rule", "attention", "mul")]


def test_the_rule_that_takes_a_fused_task_instead_says_what_is_fused(install: Install) -> None:
    """plugin-friction.md bug 1: the task is cut by the abilities of the rule that takes it."""
    ctx = install(
        'ops=("rms_norm",), epilogue="element-wise"',
        "def match(self, task, ctx): return super().match(task, ctx) if task.is_plain else None",
    )
    assert tasks(NORM, ctx) == [("cpu.normalize", "neg", "rms_norm", "relu")]


def test_equal_anchors_are_asked_about_once(install: Install) -> None:
    ctx = install(
        'ops=("rms_norm",), prologue="gather", epilogue="element-wise"',
        "asked = []\n"
        "    def match(self, task, ctx):\n"
        "        self.asked.append(len(task.nodes))\n"
        "        return super().match(task, ctx)",
    )
    layers = "".join(
        f"  %{3 * n}: f32[8, 16] = neg(%{3 * n - 1 if n else 'x'})\n"
        f"  %{3 * n + 1}: f32[8, 16] = rms_norm(%{3 * n}, %w, rank=1)\n"
        f"  %{3 * n + 2}: f32[8, 16] = relu(%{3 * n + 1})\n"
        for n in range(6)
    )
    text = f"graph g(%x: f32[8, 16], %w: f32[16]):\n{layers}  return %17\n"
    assert len({row[0] for row in tasks(text, ctx)}) == 1
    rule = ctx.registry.schedules["mine.rule"].resolve()
    # The bare anchor once; fused tasks once for each alignment of what they read and write.
    assert rule.asked.count(1) == 1  # type: ignore[attr-defined]
    assert len(rule.asked) <= 5  # type: ignore[attr-defined]


def test_load_means_element_wise_producers_and_gather_any(install: Install) -> None:
    """plugin-friction.md bug 4."""
    text = """
graph g(%x: f32[8, 16], %b: f32[16]):
  %0: f32[8, 16] = flip(%x, axes=[1])
  %1: f32[8, 16] = add(%0, %b)
  %2: f32[8, 16] = softmax(%1, axis=1)
  return %2
"""
    load = install('ops=("softmax",), prologue="load"', "pass")
    assert tasks(text, load) == [("cpu.elementwise", "flip"), ("mine.rule", "add", "softmax")]
    gather = install('ops=("softmax",), prologue="gather"', "pass")
    assert tasks(text, gather) == [("mine.rule", "flip", "add", "softmax")]


BROKEN = {
    "match": ('raise ValueError("bad match")', "ValueError: bad match"),
    "default": ('raise ValueError("bad default")', "ValueError: bad default"),
    "build": ("return None", "it returned a NoneType, expected a hidet.schedule.Program"),
}


@pytest.mark.parametrize("method", BROKEN)
def test_a_broken_rule_is_named_with_its_plugin_and_the_next_one_is_asked(install: Install, method: str) -> None:
    """plugin-friction.md bug 2."""
    body, message = BROKEN[method]
    ctx = install('ops=("softmax",)', f"def {method}(self, *given): {body}")
    graph = graph_of(SOFTMAX, ctx)
    with pytest.warns(PluginWarning) as caught:
        compiled = compile_graph(graph, ctx)
    texts = [str(warning.message) for warning in caught]
    owner = ctx.registry.owners["schedules", "mine.rule"]
    wanted = f"{owner}: schedule 'mine.rule': {method} for softmax(f32[8, 8]) raised "
    assert any(text.startswith(wanted) and message in text for text in texts), texts
    report = compiled.report()
    assert any("mine.rule" in note and str(owner) in note for note in report.notes)
    (use,) = report.uses
    assert (use.rule, use.owner) == ("cpu.softmax", str(ctx.registry.owners["schedules", "cpu.softmax"]))
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    assert np.allclose(compiled(x).sum(1), 1, atol=1e-5)


def test_a_rule_that_cannot_be_imported_is_named_and_the_next_one_is_asked(install: Install) -> None:
    """plugin-friction.md bug 2, red-team.md finding 17."""
    ctx = install('ops=("softmax",), load="nowhere_at_all:Rule"')
    with pytest.warns(
        PluginWarning, match=r"rules_\d+.*schedule 'mine.rule': match .* No module named 'nowhere_at_all'"
    ):
        compiled = compile_graph(graph_of(SOFTMAX, ctx), ctx)
    assert [use.rule for use in compiled.report().uses] == ["cpu.softmax"]


@pytest.mark.parametrize("method", BROKEN)
def test_strict_mode_raises_for_a_broken_rule(install: Install, method: str) -> None:
    """plugin-friction.md bug 2."""
    ctx = install('ops=("softmax",)', f"def {method}(self, *given): {BROKEN[method][0]}", strict=True)
    with pytest.raises(PluginError, match=rf"schedule 'mine.rule': {method} for softmax"):
        compile_graph(graph_of(SOFTMAX, ctx), ctx)


OPTION = """
    from hidet.plugins import OptionSpec, ScheduleSpec
    from hidet.errors import ScheduleError
    from hidet.schedule.fallback import FallbackRule

    HIDET_API = 1

    def hidet_options():
        yield OptionSpec(name="mine.most", type=int, default=4, doc="Rows that it takes.", affects_cache=False)

    def hidet_schedules():
        yield ScheduleSpec(name="mine.rule", targets=("cpu",), priority=150, {spec})

    {code}

    class Rule(FallbackRule):
        def match(self, task, ctx):
            rows = task.outputs[0].type.shape[0]
            return super().match(task, ctx) if rows <= ctx.option("mine.most") else None
"""


def test_a_rule_reads_the_options_of_its_plugin(install: Install) -> None:
    """plugin-friction.md section 2: options were for passes alone."""
    ctx = install('ops=("softmax",)', source=OPTION)
    assert [row[0] for row in tasks(SOFTMAX, ctx)] == ["cpu.softmax"]
    wider = make_context("cpu", {"cache": False, "mine.most": 8})
    assert [row[0] for row in tasks(SOFTMAX, wider)] == ["mine.rule"]


def test_a_hook_may_choose_other_parameters(install: Install) -> None:
    """plugin-friction.md section 2: `hidet_choose_schedule` could not change them."""
    hook = (
        "def hidet_choose_schedule(task, candidates, ctx):\n"
        "    from dataclasses import replace\n"
        "    asked.append((task.op_name, ctx.target.name))\n"
        "    return replace(candidates[0], params=replace(candidates[0].params, item_elements=4096))\n"
        "asked = []\n"
    )
    ctx = install('ops=("nothing",)', hook, source=OPTION)
    chosen = select_schedules(fuse(graph_of(SOFTMAX, ctx), ctx), ctx)
    (callback,) = ctx.registry.callbacks["hidet_choose_schedule"]
    assert callback.function.__globals__["asked"] == [("softmax", "cpu")]
    assert [row.rule_name for row in chosen.steps if isinstance(row, ScheduledTask)] == ["cpu.softmax"]


@pytest.mark.parametrize(("looks", "asked"), [("", ["cpu.softmax"]), ("len(candidates)", ["cpu.softmax", "fallback"])])
def test_rules_are_asked_as_far_as_a_hook_looks(install: Install, looks: str, asked: list[str]) -> None:
    ctx = install('ops=("nothing",)', f"def hidet_choose_schedule(candidates):\n    {looks or 'pass'}\n", source=OPTION)
    (step,) = select_schedules(fuse(graph_of(SOFTMAX, ctx), ctx), ctx).steps
    assert isinstance(step, ScheduledTask)
    rules = [answer.rule for answer in step.decision.answers]
    assert (rules[rules.index("cpu.softmax") :], step.rule_name) == (asked, "cpu.softmax")


def test_a_rule_without_a_method_is_an_error_that_names_it(install: Install) -> None:
    ctx = install('ops=("softmax",), load=__name__ + ":Half"', "class Half:\n    match = None", source=OPTION)
    with pytest.warns(PluginWarning, match=r"PluginError: rules_\d+._plugin:Half has no space\(\)"):
        compile_graph(graph_of(SOFTMAX, ctx), ctx)


KINDS = """
    from hidet.cpu.target import CpuTarget
    from hidet.plugins import ScheduleSpec, TargetSpec
    from hidet.schedule.fallback import FallbackRule

    HIDET_API = 1

    def hidet_targets():
        yield TargetSpec(name="another", kind="cpu", load=__name__ + ":Another")

    def hidet_schedules():
        yield ScheduleSpec(name="mine.rule", {spec})

    class Another(CpuTarget):
        name = "another"

    class Rule(FallbackRule):
        {code}
"""


def test_a_rule_for_a_kind_serves_each_target_of_it(install: Install) -> None:
    """plugin-friction.md section 4: no pack for "cpu" served a second CPU target."""
    install('ops=("relu", "softmax"), kinds=("cpu",)', source=KINDS)
    for target in ("cpu", "another"):
        ctx = make_context(target, {"cache": False, "threads": 1})
        assert [row[0] for row in tasks(SOFTMAX, ctx)] == ["mine.rule"]


def test_a_graph_runs_on_a_second_target_for_the_cpu(install: Install) -> None:
    install('ops=("sum",), kinds=("cpu",)', source=KINDS)
    ctx = make_context("another", {"cache": False, "threads": 1})
    text = "graph g(%x: f32[3, 5]):\n  %0: f32[3] = sum(%x, axes=[1])\n  return %0\n"
    compiled = compile_graph(graph_of(text, ctx), ctx)
    assert [use.rule for use in compiled.report().uses] == ["mine.rule"]
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert compiled(x).tolist() == x.sum(1).tolist()


WRONG_TYPES = (
    "def build(self, match, params, ctx):\n"
    "        from dataclasses import replace\n"
    "        from hidet.ir import build, visit\n"
    "        from hidet.ir.expr import Binary\n"
    "        from hidet.ir.stmt import Store\n"
    "        from hidet import dtypes\n"
    "        program = super().build(match, params, ctx)\n"
    "        def wrong(s):\n"
    "            if not isinstance(s, Store): return None\n"
    "            one = build.const(1, dtypes.i32)\n"
    '            return replace(s, value=Binary("add", s.value, one, s.value.type))\n'
    "        functions = tuple(replace(f, body=visit.rewrite(f.body, wrong)) for f in program.module.functions)\n"
    "        return replace(program, module=replace(program.module, functions=functions))"
)
FEWER_PARAMETERS = (
    "def build(self, match, params, ctx):\n"
    "        from dataclasses import replace\n"
    "        return replace(super().build(match, params, ctx), arguments=(1, 2, 3))"
)


@pytest.mark.parametrize(("code", "message"), [(WRONG_TYPES, "f32"), (FEWER_PARAMETERS, "and then 3 numbers")])
def test_programs_of_plugins_are_always_verified(install: Install, code: str, message: str) -> None:
    """plugin-friction.md bug 3: invalid IR became wrong numbers."""
    ctx = install('ops=("softmax",)', code)
    assert not ctx.options.verify
    with pytest.warns(PluginWarning, match=f"mine.rule.* build .*VerifyError: .*{message}"):
        compiled = compile_graph(graph_of(SOFTMAX, ctx), ctx)
    assert [use.rule for use in compiled.report().uses] == ["cpu.softmax"]


PASSES = """
    from dataclasses import dataclass, replace
    from typing import ClassVar
    from hidet.plugins import PassSpec, RewriteSpec

    HIDET_API = 1

    def hidet_passes():
        yield PassSpec({spec})

    def hidet_rewrites():
        yield RewriteSpec(name="mine.rules", stage="simplify", load="{name}._plugin:RULES")

    RULES = {{}}

    @dataclass(frozen=True)
    class Pass:
        name: ClassVar[str] = "mine.pass"

        def run(self, subject, ctx):
            {code}
"""


@pytest.mark.parametrize(
    ("level", "code", "message"),
    [
        ("graph", 'raise KeyError("gone")', "gone"),
        ("graph", "return None", "returned a NoneType"),
        ("graph", "return replace(subject, nodes=())", "after graph pass 'mine.pass'"),
        ("program", "return replace(subject, entry='nothing')", "entry 'nothing' is no host function"),
    ],
)
def test_an_error_of_a_pass_names_the_pass_and_its_plugin(
    install: Install, level: str, code: str, message: str
) -> None:
    """red-team.md finding 17 and plugin-friction.md bug 3: what a foreign pass makes is verified."""
    spec = f'name="mine.pass", level="{level}", load=__name__ + ":Pass"'
    ctx = install(spec, code, source=PASSES)
    with pytest.raises(Exception, match=message) as caught:
        compile_graph(graph_of(SOFTMAX, ctx), ctx)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "mine.pass" in told and str(ctx.registry.owners["passes", "mine.pass"]) in told


def test_a_pass_that_cannot_be_imported_names_its_plugin(install: Install) -> None:
    """red-team.md finding 17."""
    ctx = install('name="mine.pass", level="graph", load="nowhere_at_all:Pass"', "pass", source=PASSES)
    with pytest.raises(PluginError, match="nowhere_at_all") as caught:
        compile_graph(graph_of(SOFTMAX, ctx), ctx)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert str(ctx.registry.owners["passes", "mine.pass"]) in told


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_weights_are_not_packed_for_a_rule_that_takes_the_product_itself(install: Install, dtype: str) -> None:
    """plugin-friction.md bug 5: the plug-in of the README was never asked for a product with weights."""
    only_f32 = 'def match(self, task, ctx): return super().match(task, ctx) if "f32" in task.summary else None'
    ctx = install('ops=("matmul", "linear")', only_f32)
    builder = GraphBuilder(ctx.registry.operators)
    kind = dtypes.dtype(dtype)
    x = builder.input(TensorType(kind, (4, 16)), "x")
    weight = builder.input(TensorType(kind, (16, 16)), "w", is_parameter=True)
    product = builder.emit("matmul", builder.emit("linear", x, weight), weight)
    rules = [use.rule for use in compile_graph(builder.build([product]), ctx).report().uses]
    assert rules == (["mine.rule", "mine.rule"] if dtype == "f32" else ["cpu.matmul"] * len(rules))
