"""Every hook works from an installed distribution to the registry."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

import hidet
from hidet.context import Options
from hidet.errors import OptionError, PluginError, PluginWarning
from hidet.plugins import specs
from hidet.plugins.host import HOOK_NAMES, discover
from hidet.plugins.registry import PluginRecord, Registry

CTX: Any = SimpleNamespace(target="target")
"""What choices are made for."""


def record_of(registry: Registry, plugin: str) -> PluginRecord:
    return next(record for record in registry.plugins if record.owner.plugin == plugin)


def test_every_hook_has_a_test_of_its_name() -> None:
    assert sorted(name for name in globals() if name.startswith("test_hook_")) == sorted(
        f"test_hook_{hook.removeprefix('hidet_')}" for hook in HOOK_NAMES
    )


def test_every_hook_specification_is_a_known_hook() -> None:
    hookspecs = importlib.import_module("hidet.plugins.hookspecs")
    assert {name for name in vars(hookspecs) if name.startswith("hidet_")} == set(HOOK_NAMES)


def test_hook_operators(install_plugin) -> None:
    install_plugin(
        "swirl",
        """
        from hidet.graph.operator import OperatorSpec
        def hidet_operators():
            yield OperatorSpec(name="swirl", inputs=("x",))
        """,
    )
    assert discover("swirl").operator("swirl").inputs == ("x",)


def test_hook_intrinsics(install_plugin) -> None:
    install_plugin(
        "acme",
        """
        from hidet.ir.intrinsic import IntrinsicFamily
        def hidet_intrinsics():
            yield IntrinsicFamily(name="acme", load="acme_rows:ROWS")
        """,
    )
    assert discover("acme").intrinsics["acme"].load == "acme_rows:ROWS"


def test_hook_routines(install_plugin) -> None:
    install_plugin(
        "acme",
        """
        from hidet.compute.routine import RoutineSpec
        def hidet_routines():
            yield RoutineSpec(name="acme.ranks", operands=("x",), results=("ranks",), program="acme_ranks:program")
            yield RoutineSpec(name="sort", operands=("x",), results=("y",))
        """,
    )
    registry = discover("acme")
    assert registry.routines["acme.ranks"].program == "acme_ranks:program"
    assert registry.routines["sort"].results == ("values", "indices")
    (problem,) = record_of(registry, "acme").problems
    assert "routine 'sort' refused: hidet-core" in problem.message


def test_hook_schedules(install_plugin) -> None:
    install_plugin(
        "fast",
        """
        from hidet.plugins import ScheduleSpec
        def hidet_schedules():
            yield ScheduleSpec(name="fast.swirl", ops=("swirl",), targets=("toy",), load="json:loads")
        """,
    )
    (spec,) = [spec for spec in discover("fast").schedules_for("swirl", "toy") if spec.name == "fast.swirl"]
    assert spec.resolve() is importlib.import_module("json").loads


def test_hook_rewrites(install_plugin) -> None:
    install_plugin(
        "rules",
        """
        from hidet.plugins import RewriteSpec
        def hidet_rewrites():
            yield RewriteSpec(name="rules.swirl", stage="simplify", load="json:loads")
            yield RewriteSpec(name="rules.toy", stage="simplify", targets=("toy",), load="json:loads")
        """,
    )
    registry = discover("rules")
    assert [spec.name for spec in registry.rewrites_for("simplify", "cpu")] == ["rules.swirl"]
    assert [spec.name for spec in registry.rewrites_for("simplify", "toy")] == ["rules.swirl", "rules.toy"]
    assert registry.rewrites_for("recompose", "cpu") == ()


def test_a_rewrite_after_a_pass_that_does_not_exist_is_a_problem(install_plugin) -> None:
    install_plugin(
        "lost",
        """
        from hidet.plugins import RewriteSpec
        def hidet_rewrites():
            yield RewriteSpec(name="lost.swirl", stage="simplfy", load="json:loads")
        """,
    )
    (problem,) = record_of(discover("lost"), "lost").problems
    assert "'lost.swirl' never runs: no graph pass is called 'simplfy'; did you mean 'simplify'?" in problem.message
    assert not problem.is_remark


def test_hook_passes(install_plugin) -> None:
    install_plugin(
        "tidy",
        """
        from hidet.plugins import PassSpec
        def hidet_passes():
            return [
                PassSpec(name="polish", level="graph", after=("scrub",), load="json:loads"),
                PassSpec(name="scrub", level="graph", load="json:loads"),
                PassSpec(name="wax", level="graph", targets=("floor",), before=("scrub",), load="json:loads"),
            ]
        """,
    )
    registry = discover("tidy")
    mine = {"polish", "scrub", "wax"}
    assert [spec.name for spec in registry.passes_for("graph", "wall") if spec.name in mine] == ["scrub", "polish"]
    assert [spec.name for spec in registry.passes_for("graph", "floor") if spec.name in mine] == [
        "wax",
        "scrub",
        "polish",
    ]


def test_hook_targets(install_plugin) -> None:
    install_plugin(
        "abacus",
        """
        from hidet.plugins import TargetSpec
        def hidet_targets():
            return [TargetSpec(name="abacus", aliases=("beads",), load="json:loads")]
        """,
    )
    registry = discover("abacus")
    assert registry.target("beads") is registry.target("abacus")


def test_hook_frontends(install_plugin) -> None:
    install_plugin(
        "recipes",
        """
        from hidet.plugins import FrontendSpec
        def hidet_frontends():
            return [FrontendSpec(name="recipe", accepts=lambda x: isinstance(x, frozenset), load="json:loads")]
        """,
    )
    assert discover("recipes").frontend_for(frozenset()).name == "recipe"


def test_hook_handlers(install_plugin) -> None:
    install_plugin(
        "translator",
        """
        from hidet.plugins import HandlerSpec
        def hidet_handlers():
            for version in (1, 4):
                yield HandlerSpec(frontend="onnx", operator="acme.Swirl", since_version=version, load="json:loads")
        """,
    )
    registry = discover("translator")
    assert [spec.since_version for spec in registry.handlers_for("onnx")["acme.Swirl"]] == [4, 1]
    assert registry.handlers_for("torch") == {}


def test_hook_commands(install_plugin) -> None:
    install_plugin(
        "shout",
        """
        def hidet_commands(cli):
            cli.add("shout", load="shout_commands:shout", doc="Shout.")
        """,
    )
    assert discover("shout").command("shout") == specs.CommandSpec(
        name="shout", load="shout_commands:shout", doc="Shout."
    )


def test_hook_tuning_strategies(install_plugin) -> None:
    install_plugin(
        "patient",
        """
        from hidet.plugins import StrategySpec
        def hidet_tuning_strategies():
            yield StrategySpec(name="patient.annealing", load="json:loads")
        """,
    )
    registry = discover("patient")
    assert registry.tuning_strategy("patient.annealing").resolve() is importlib.import_module("json").loads
    with pytest.raises(OptionError, match="tuning strategy 'annealing' is unknown"):
        registry.tuning_strategy("annealing")


def test_hook_tuning_executors(install_plugin) -> None:
    install_plugin(
        "fleet",
        """
        from hidet.plugins import ExecutorSpec
        def hidet_tuning_executors():
            yield ExecutorSpec(name="fleet.ships", load="json:loads")
        """,
    )
    registry = discover("fleet")
    assert registry.tuning_executor("fleet.ships").resolve() is importlib.import_module("json").loads
    with pytest.raises(OptionError, match="tuning executor 'ships' is unknown"):
        registry.tuning_executor("ships")


def test_hook_checks(install_plugin) -> None:
    install_plugin(
        "looks",
        """
        from hidet.plugins import CheckSpec
        def hidet_checks():
            return [CheckSpec(name="looks.well", load="json:loads")]
        """,
    )
    assert discover("looks").checks["looks.well"].resolve() is importlib.import_module("json").loads


def test_hook_options(install_plugin) -> None:
    install_plugin(
        "knobs",
        """
        from hidet.plugins import OptionSpec
        def hidet_options():
            return [OptionSpec(name="knobs.turns", type=int, default=3, doc="Turns.", affects_cache=True)]
        """,
    )
    assert discover("knobs").option("knobs.turns").default == 3


def test_hook_choose_schedule(install_plugin) -> None:
    install_plugin("abstains", "def hidet_choose_schedule(): return None")
    install_plugin("chooses", "def hidet_choose_schedule(candidates): return candidates[-1]")
    install_plugin("too_late", "def hidet_choose_schedule(task): return task")
    registry = discover("abstains,chooses,too_late")
    assert registry.choose_schedule("task", ["first", "second"], CTX) == "second"


def test_hook_tune_graph(install_plugin) -> None:
    install_plugin("abstains", "def hidet_tune_graph(): return None")
    install_plugin("tunes", "def hidet_tune_graph(graph, ctx): return f'{graph} within {ctx.options.tune.seconds:g} s'")
    ctx: Any = SimpleNamespace(options=Options(tune="2m"))
    assert discover("abstains,tunes").tune_graph("graph", ctx, None) == "graph within 120 s"
    assert discover("abstains").tune_graph("graph", ctx, None) is None


def test_a_tuner_that_fails_is_named_and_what_it_says_to_users_is_raised(install_plugin) -> None:
    install_plugin("breaks", "def hidet_tune_graph(): return 1 / 0")
    install_plugin(
        "refuses",
        """
        from hidet.errors import OptionError
        def hidet_tune_graph():
            raise OptionError("there is no store")
        """,
    )
    ctx: Any = SimpleNamespace(options=Options(tune=1))
    with pytest.warns(PluginWarning, match=r"breaks.*hidet_tune_graph raised ZeroDivisionError"):
        assert discover("breaks").tune_graph("graph", ctx, None) is None
    with pytest.raises(OptionError, match="there is no store"):
        discover("refuses").tune_graph("graph", ctx, None)


def test_where_nobody_tunes_the_wheel_is_named_that_does() -> None:
    registry = discover("")
    with pytest.raises(OptionError, match=r"no plug-in that measures .*\s+hint: pip install hidet-tune"):
        registry.tune_graph("graph", SimpleNamespace(options=Options(tune="1s")), None)
    with pytest.warns(PluginWarning, match=r"mode 'max-autotune' measures no .*\s+hint: pip install hidet-tune"):
        options = Options(mode="max-autotune").with_budget()
        assert registry.tune_graph("graph", SimpleNamespace(options=options), None) is None
    with pytest.warns(PluginWarning, match="option search_space measures no schedules"):
        options = Options(search_space=2).with_budget()
        assert registry.tune_graph("graph", SimpleNamespace(options=options), None) is None


def test_a_chosen_schedule_may_have_other_parameters(install_plugin) -> None:
    install_plugin("tunes", "def hidet_choose_schedule(candidates, ctx): return ctx.tune(candidates[0])")
    first = SimpleNamespace(match=object(), params=1)
    tuned = SimpleNamespace(match=first.match, params=2)
    ctx: Any = SimpleNamespace(target="target", tune=lambda candidate: tuned)
    assert discover("tunes").choose_schedule("task", [first], ctx) is tuned


def test_a_choice_that_is_no_candidate_is_an_error_that_names_the_plugin(install_plugin) -> None:
    install_plugin("guesses", "def hidet_choose_schedule(): return 17")
    with pytest.raises(PluginError, match=r"guesses.*hidet_choose_schedule chose 17, .* none of the 2 candidates"):
        discover("guesses").choose_schedule("task", ["first", "second"], CTX)


def test_hook_pass_done(install_plugin) -> None:
    install_plugin("observer", "def hidet_pass_done(seconds, name, before): before.seen.append((name, seconds))")
    before = SimpleNamespace(seen=[])
    discover("observer").pass_done("fold", "graph", before, None, 0.5)
    assert before.seen == [("fold", 0.5)]


def test_hook_graph_facts(install_plugin) -> None:
    install_plugin("states", "def hidet_graph_facts(ctx): return ctx.fact")
    install_plugin("has_files", "def hidet_graph_facts(): return 'files'")
    ctx: Any = SimpleNamespace(target=SimpleNamespace(name="toy"), fact="rules")
    assert discover("states,has_files").graph_facts(ctx) == "has_files: files; states: rules"
    ctx.fact = None
    assert discover("states").graph_facts(ctx) is None


def test_a_plugin_that_chooses_has_to_say_what_its_choices_depend_on(install_plugin) -> None:
    install_plugin("silent", "def hidet_choose_schedule(): return None")
    ctx: Any = SimpleNamespace(target=SimpleNamespace(name="toy"))
    assert discover("silent").graph_facts(ctx) is None


def test_hook_kernel_built(install_plugin, tmp_path) -> None:
    install_plugin(
        "logger",
        """
        from pathlib import Path
        def hidet_kernel_built(name, binary, cached):
            Path(name).write_text(f"{len(binary)} {cached}")
        """,
    )
    log = tmp_path / "log"
    discover("logger").kernel_built(str(log), "toy", "program", b"12345", cached=True)
    assert log.read_text() == "5 True"


def test_hook_graph_compiled(install_plugin) -> None:
    install_plugin("listener", "def hidet_graph_compiled(graph, lowered): graph.append(lowered)")
    seen: list[object] = []
    discover("listener").graph_compiled("compiled", lambda: seen, "lowered", "ctx")
    assert seen == ["lowered"]


def test_a_raising_observer_warns_and_compilation_goes_on(install_plugin) -> None:
    install_plugin("bad_observer", "def hidet_pass_done(name): raise ValueError('no ' + name)")
    install_plugin("good_observer", "def hidet_pass_done(before): before.append(1)")
    seen: list[int] = []
    with pytest.warns(
        match=r'bad_observer-dist 1.2 \(plugin "bad_observer"\): hidet_pass_done raised ValueError: no fold'
    ):
        discover("bad_observer,good_observer").pass_done("fold", "graph", seen, None, 0.5)
    assert seen == [1]


def test_hook_attributes(install_plugin, monkeypatch) -> None:
    install_plugin(
        "old_names",
        """
        from hidet.plugins import AttributeSpec
        def hidet_attributes():
            yield AttributeSpec(name="hidet.graph.parse_it", load="json:loads")
            yield AttributeSpec(name="hidet.graph.Graph", load="json:loads")
        """,
    )
    monkeypatch.setattr("hidet.plugins.host.load_registry", lambda: discover("old_names"))
    loads = importlib.import_module("json").loads
    graph = importlib.import_module("hidet.graph")
    assert graph.parse_it is loads
    assert graph.Graph is not loads, "a module's own names come first"
    with pytest.raises(AttributeError, match=r"module 'hidet\.graph' has no attribute 'parse_them'"):
        _ = graph.parse_them


def test_classes_have_functions_and_properties_of_plug_ins(install_plugin, monkeypatch) -> None:
    install_plugin(
        "members",
        """
        from hidet.plugins import AttributeSpec
        def hidet_attributes():
            yield AttributeSpec(name="hidet.Tensor.rows_of", load="members_plugin_module:rows_of")
            yield AttributeSpec(name="hidet.Tensor.rows", load="members_plugin_module:rows")
            yield AttributeSpec(name="hidet.FlowGraph.count", load="members_plugin_module:count")
        def rows_of(tensor, number):
            return tensor.shape[0] * number
        rows = property(lambda tensor: tensor.shape[0])
        def count(graph):
            return len(graph.nodes)
        """,
    )
    x = hidet.ones([2, 3])
    graph = hidet.trace_from(hidet.symbol([2]) * 2.0)
    monkeypatch.setattr("hidet.plugins.host.load_registry", lambda: discover("members"))
    assert (x.rows, x.rows_of(4), graph.count()) == (2, 8, 1)
    for owner, kind in ((x, "Tensor"), (graph, "FlowGraph")):
        for name in ("nothing", "_rows"):
            with pytest.raises(AttributeError, match=f"'{kind}' object has no attribute '{name}'"):
                getattr(owner, name)
