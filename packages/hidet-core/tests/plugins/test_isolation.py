"""A broken plug-in is reported by name and stage, and disables nothing but itself."""

from __future__ import annotations

import warnings

import pytest

from hidet.errors import OptionError, PluginError, PluginWarning
from hidet.plugins import host
from hidet.plugins.host import discover
from hidet.plugins.registry import Problem

GOOD = """
from hidet.plugins import TargetSpec
def hidet_targets():
    return [TargetSpec(name="{name}", load="json:loads")]
"""


def only_problem(selection: str, plugin: str) -> Problem:
    record = next(record for record in discover(selection).plugins if record.owner.plugin == plugin)
    (problem,) = record.problems
    return problem


@pytest.mark.parametrize(
    ("source", "api", "stage", "message"),
    [
        ("import missing_library", "", "import", "ModuleNotFoundError: No module named 'missing_library'"),
        ("raise RuntimeError('half installed')", "", "import", "RuntimeError: half installed"),
        ("def broken(:", "", "import", "SyntaxError"),
        ("raise SystemExit(3)", "", "import", "SystemExit: 3"),
        ("", "HIDET_API = 99", "api", "it was written for HIDET_API 99, this hidet-core has 1"),
        ("", "", "api", "it does not state HIDET_API, this hidet-core has 1"),
        (
            "def hidet_schedule(): return []",
            "HIDET_API = 1",
            "hooks",
            "hidet_schedule is not a hook; did you mean hidet_",
        ),
        ("def hidet_targets(tune): return []", "HIDET_API = 1", "register", "tune"),
    ],
    ids=[
        "import error",
        "raising import",
        "syntax error",
        "exit",
        "wrong api",
        "no api",
        "misspelt",
        "wrong arguments",
    ],
)
def test_a_plugin_broken_before_its_hooks_run_is_disabled_and_named(
    install_plugin, source, api, stage, message
) -> None:
    install_plugin("bad", source, api=api)
    install_plugin("good", GOOD.format(name="good_target"))
    registry = discover("bad,good")
    assert registry.targets["good_target"].name == "good_target"
    status = {record.owner.plugin: record.status for record in registry.plugins}
    assert status["bad"] == "disabled" and status["good"] == "active"
    problem = only_problem("bad,good", "bad")
    assert problem.stage == stage
    assert str(problem).startswith(f'bad-dist 1.2 (plugin "bad"): disabled at {stage}: ')
    assert message in problem.message


def test_a_plugin_with_wrong_arguments_loses_its_other_hooks_too(install_plugin) -> None:
    install_plugin("half", GOOD.format(name="half_target") + "def hidet_targets(wrong): return []")
    assert "half_target" not in discover("half").targets


def test_a_raising_hook_is_reported_and_the_other_hooks_of_its_plugin_stay(install_plugin) -> None:
    install_plugin("raises", GOOD.format(name="kept") + "def hidet_passes(): return [1 / 0]")
    registry = discover("raises")
    assert registry.targets["kept"].name == "kept"
    problem = only_problem("raises", "raises")
    assert problem.message == "hidet_passes raised ZeroDivisionError: division by zero"
    assert problem.traceback is not None and "hidet_passes" in problem.traceback


def test_a_generator_that_raises_midway_contributes_nothing(install_plugin) -> None:
    install_plugin(
        "midway", GOOD.format(name="x").replace("return [", "yield ").replace("]", "") + "    raise OSError('gone')"
    )
    assert "x" not in discover("midway").targets
    assert only_problem("midway", "midway").message == "hidet_targets raised OSError: gone"


def test_a_hook_that_returns_nothing_is_an_error_that_says_what_was_expected(install_plugin) -> None:
    install_plugin("void", "def hidet_targets(): pass")
    assert "returned None, expected a list" in only_problem("void", "void").message


def test_a_spec_of_the_wrong_class_is_refused_alone(install_plugin) -> None:
    install_plugin("mixed", GOOD.format(name="fine").replace("return [", "return ['oops', "))
    assert discover("mixed").targets["fine"].name == "fine"
    assert only_problem("mixed", "mixed").message == "hidet_targets returned 'oops', expected TargetSpec"


def test_an_invalid_spec_names_field_value_and_expectation(install_plugin) -> None:
    install_plugin("invalid", GOOD.format(name="t").replace("json:loads", "json.loads"))
    expected = "TargetSpec 't': load is 'json.loads', expected 'package.module:attribute'"
    assert expected in only_problem("invalid", "invalid").message


def test_the_first_owner_keeps_a_duplicate_name_and_both_distributions_are_named(install_plugin) -> None:
    install_plugin("aaa", GOOD.format(name="twice"))
    install_plugin("bbb", GOOD.format(name="twice").replace("json:loads", "json:dumps"))
    assert discover("bbb,aaa").targets["twice"].load == "json:loads"
    problem = only_problem("bbb,aaa", "bbb")
    assert 'bbb-dist 1.2 (plugin "bbb"): target \'twice\' refused: aaa-dist 1.2 (plugin "aaa") has it' in str(problem)


def test_a_plugin_may_say_that_it_replaces_a_name(install_plugin) -> None:
    install_plugin("aaa", GOOD.format(name="twice"))
    install_plugin("bbb", GOOD.format(name='twice", replaces="twice').replace("json:loads", "json:dumps"))
    registry = discover("aaa,bbb")
    assert registry.targets["twice"].load == "json:dumps"
    assert registry.owners["targets", "twice"].plugin == "bbb"
    assert not any(record.problems for record in registry.plugins)


def test_a_plugin_for_another_core_version_is_reported_but_stays_active(install_plugin) -> None:
    install_plugin("dated", GOOD.format(name="dated_target"), requires=("hidet-core<9,>=8.1",))
    registry = discover("dated")
    assert registry.targets["dated_target"].name == "dated_target"
    assert "needs hidet-core <9,>=8.1, but" in only_problem("dated", "dated").message


def test_two_entry_points_to_one_module_are_a_registration_problem(install_plugin, tmp_path) -> None:
    install_plugin("one", GOOD.format(name="shared"))
    points = tmp_path / "one_dist-1.2.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "two = one_plugin_module\n")
    registry = discover("one,two")
    assert [record.status for record in registry.plugins if record.owner.plugin in ("one", "two")] == [
        "active",
        "disabled",
    ]
    assert registry.targets["shared"].name == "shared"


class TestSelection:
    def test_empty_loads_the_built_ins_only(self, install_plugin) -> None:
        install_plugin("extra", GOOD.format(name="extra_target"))
        assert [record.owner.plugin for record in discover("").plugins] == ["core"]

    def test_none_loads_everything_installed(self, install_plugin) -> None:
        install_plugin("extra", GOOD.format(name="extra_target"))
        assert "extra" in [record.owner.plugin for record in discover(None).plugins]

    def test_a_module_name_needs_no_entry_point(self, tmp_path, monkeypatch) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "loose_package").mkdir()
        (tmp_path / "loose_package" / "_plugin.py").write_text("HIDET_API = 1\n" + GOOD.format(name="loose"))
        registry = discover("loose_package._plugin")
        assert str(registry.owners["targets", "loose"]) == 'plugin "loose_package._plugin"'

    def test_an_unknown_name_is_reported_with_the_nearest_one(self, install_plugin) -> None:
        install_plugin("parsnip", "")
        message = only_problem("parsnp", "parsnp").message
        assert message.startswith("HIDET_PLUGINS names 'parsnp', which is not installed; did you mean 'parsnip'?")

    def test_our_wheels_own_names_before_others_whatever_the_order(self, install_plugin) -> None:
        install_plugin("aardvark", "")
        names = [record.owner.plugin for record in discover("aardvark,hidet.plugins").plugins]
        assert names == ["core", "hidet.plugins", "aardvark"]


class TestEnvironment:
    @pytest.fixture(autouse=True)
    def own_cache(self, monkeypatch):
        host._load.cache_clear()
        monkeypatch.delenv("HIDET_STRICT_PLUGINS", raising=False)
        yield
        host._load.cache_clear()

    def test_each_problem_warns_once_a_process(self, install_plugin, monkeypatch) -> None:
        install_plugin("boom", "raise OSError('boom')")
        monkeypatch.setenv("HIDET_PLUGINS", "boom")
        with pytest.warns(PluginWarning, match=r"disabled at import: OSError: boom. See: hidet plugins"):
            first = host.load_registry()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert host.load_registry() is first

    def test_another_selection_is_another_registry(self, install_plugin, monkeypatch) -> None:
        install_plugin("one", GOOD.format(name="one_target"))
        monkeypatch.setenv("HIDET_PLUGINS", "one")
        assert "one_target" in host.load_registry().targets
        monkeypatch.setenv("HIDET_PLUGINS", "")
        assert "one_target" not in host.load_registry().targets

    def test_strict_mode_raises(self, install_plugin, monkeypatch) -> None:
        install_plugin("boom", "raise OSError('boom')")
        monkeypatch.setenv("HIDET_PLUGINS", "boom")
        monkeypatch.setenv("HIDET_STRICT_PLUGINS", "1")
        with pytest.raises(PluginError, match=r"boom-dist 1.2 .*OSError: boom"):
            host.load_registry()

    def test_strict_mode_raises_for_a_raising_observer(self, install_plugin) -> None:
        install_plugin("bad_observer", "def hidet_pass_done(name): raise ValueError(name)")
        with pytest.raises(PluginError, match="hidet_pass_done raised ValueError: fold"):
            discover("bad_observer", is_strict=True).pass_done("fold", "graph", None, None, 0.5)


def test_a_missing_name_mentions_the_disabled_plugins(install_plugin) -> None:
    install_plugin("gone", "import missing_library")
    with pytest.raises(OptionError) as caught:
        discover("gone").target("abacus")
    assert "target 'abacus' is unknown" in str(caught.value)
    assert 'disabled plug-in: gone-dist 1.2 (plugin "gone"): disabled at import: ModuleNotFoundError' in str(
        caught.value
    )


def test_ctrl_c_while_a_plugin_runs_is_the_users(install_plugin) -> None:
    """red-team.md finding 17: it ends what the user runs, and is not taken for a fault of the plug-in."""
    install_plugin("slow", "def hidet_pass_done(name): raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        discover("slow").pass_done("fold", "graph", None, None, 0.5)


@pytest.mark.parametrize("returned", ["'sofa'", "b'sofa'", "3", "TargetSpec(name='t', load='json:loads')"])
def test_a_hook_that_returns_no_list_is_one_problem(install_plugin, returned) -> None:
    """plugin-friction.md bug 11: a string was one problem a letter."""
    install_plugin("texts", f"from hidet.plugins import TargetSpec\ndef hidet_targets(): return {returned}")
    assert "expected a list of specs" in only_problem("texts", "texts").message


def test_a_name_of_two_distributions_selects_the_first_owner(install_plugin, tmp_path) -> None:
    """plugin-friction.md bug 11: HIDET_PLUGINS=cpu took both."""
    install_plugin("aaa", GOOD.format(name="target_a"))
    install_plugin("bbb", GOOD.format(name="target_b"))
    points = tmp_path / "bbb_dist-1.2.dist-info" / "entry_points.txt"
    points.write_text(points.read_text().replace("bbb =", "aaa ="))
    registry = discover("aaa")
    assert "target_a" in registry.targets and "target_b" not in registry.targets
    problems = [str(problem) for record in registry.plugins for problem in record.problems]
    assert any("bbb-dist 1.2" in text and "is named by its module, bbb_plugin_module" in text for text in problems)
    assert "target_b" in discover("aaa,bbb_plugin_module").targets


class TestRemarks:
    """plugin-friction.md bug 7: what is for nothing that exists is remarked on, as stages and names of passes are."""

    SOURCE = """
    from hidet.plugins import PassSpec, RewriteSpec, ScheduleSpec, TargetSpec
    def hidet_targets():
        yield TargetSpec(name="loom", load="json:loads")
    def hidet_schedules():
        yield ScheduleSpec(name="s", ops=("{op}",), targets=("{target}",), load="json:loads")
    def hidet_passes():
        yield PassSpec(name="p", level="graph", targets=("{target}",), load="json:loads")
    def hidet_rewrites():
        yield RewriteSpec(name="r", stage="simplify", targets=("{target}",), load="json:loads")
    """

    @pytest.mark.parametrize("op", ["softmax", "elementwise", "script", "family:reduction", "*"])
    def test_known_names_are_none(self, install_plugin, op) -> None:
        install_plugin("known", self.SOURCE.format(op=op, target="loom"))
        assert not [problem for record in discover("known").plugins for problem in record.problems]

    def test_unknown_operators_and_targets_are(self, install_plugin) -> None:
        install_plugin("unknown", self.SOURCE.format(op="sofmax", target="loon"))
        (record,) = [record for record in discover("unknown").plugins if record.owner.plugin == "unknown"]
        assert all(problem.is_remark for problem in record.problems)
        texts = [problem.message for problem in record.problems]
        assert "schedule 's' is for 'sofmax', which no operator is called; did you mean 'softmax'" in texts[0]
        for text, spec in zip(texts[1:], ("schedule 's'", "pass 'p'", "rewrite 'r'"), strict=True):
            assert f"{spec} is for 'loon', which no target is called; did you mean 'loom'" in text

    def test_a_family_without_operators_is(self, install_plugin) -> None:
        install_plugin("empty", self.SOURCE.format(op="family:reductions", target="loom"))
        message = only_problem("empty", "empty").message
        assert "is for family 'reductions', which no operator is of; did you mean 'reduction'" in message

    @pytest.mark.parametrize(
        ("command", "why"), [("compile", "replaces='compile'"), ("doctor", "hidet's own, which works whatever")]
    )
    def test_a_command_that_hidet_has_is_refused(self, install_plugin, command, why) -> None:
        install_plugin("shadow", f"def hidet_commands(cli): cli.add('{command}', load='json:loads', doc='Mine.')")
        message = only_problem("shadow", "shadow").message
        assert f"command '{command}' refused" in message and why in message


REPLACING = """
from hidet.plugins import PassSpec
def hidet_passes():
    yield PassSpec(name="{name}", level="graph", replaces="{replaces}", load="json:loads")
"""


def test_rewrites_and_orders_follow_a_pass_to_what_replaces_it(install_plugin) -> None:
    """plugin-friction.md bug 6, through two replacements."""
    install_plugin("aaa", REPLACING.format(name="a.simplify", replaces="simplify"))
    install_plugin("bbb", REPLACING.format(name="b.simplify", replaces="a.simplify"))
    install_plugin(
        "ccc",
        """
        from hidet.plugins import PassSpec, RewriteSpec
        def hidet_rewrites():
            for stage in ("simplify", "a.simplify", "b.simplify"):
                yield RewriteSpec(name="c." + stage, stage=stage, load="json:loads")
        def hidet_passes():
            yield PassSpec(name="c.early", level="graph", before=("simplify",), load="json:loads")
        """,
    )
    registry = discover("aaa,bbb,ccc")
    assert not [problem for record in registry.plugins for problem in record.problems]
    names = [spec.name for spec in registry.rewrites_for("b.simplify", "any")]
    assert names == ["c.simplify", "c.a.simplify", "c.b.simplify"]
    order = [spec.name for spec in registry.passes_for("graph", "any")]
    assert order.index("c.early") < order.index("b.simplify") < order.index("common-subexpr")
    assert not {"simplify", "a.simplify"} & set(order)
