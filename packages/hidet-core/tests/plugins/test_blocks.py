"""Which plug-ins are active: HIDET_PLUGINS with signs, objects and places, and `use` and `without` for a block."""

from __future__ import annotations

import sys
import threading
import warnings
from types import SimpleNamespace

import pytest

import hidet
from hidet.context import make_context
from hidet.errors import PluginError, PluginWarning
from hidet.plugins import TargetSpec, use, without
from hidet.plugins.host import discover, load_registry

SOURCE = """
from hidet.plugins import TargetSpec
class Tools:
    HIDET_API = 1
    def hidet_targets(self):
        return [TargetSpec(name="{name}", load="json:loads")]
tools = Tools()
def hidet_targets():
    return tools.hidet_targets()
"""


class Loom:
    """A plug-in as a notebook has one."""

    HIDET_API = 1

    def hidet_targets(self):
        return [TargetSpec(name="loom", load="json:loads")]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("HIDET_PLUGINS", "")
    monkeypatch.delenv("HIDET_STRICT_PLUGINS", raising=False)


@pytest.fixture
def mill(install_plugin) -> str:
    return install_plugin("mill", SOURCE.format(name="mill_target"))


def plugins(selection: str | None) -> set[str]:
    return {record.owner.plugin for record in discover(selection).plugins if record.status == "active"}


def problems(registry) -> list[str]:
    return [str(problem) for record in registry.plugins for problem in record.problems]


class TestEnvironment:
    def test_a_minus_leaves_out_one_of_all(self, mill) -> None:
        assert plugins("-mill") == plugins(None) - {"mill"}

    def test_a_plus_adds_one_to_all(self, mill) -> None:
        assert plugins("+mill_plugin_module:Tools") == plugins(None) | {"mill_plugin_module:Tools"}

    def test_a_name_without_a_sign_is_all_there_is(self, mill) -> None:
        assert plugins("mill,-cpu") == {"core", "mill"}

    def test_what_is_left_out_may_be_named_by_its_module(self, mill) -> None:
        assert "mill" not in plugins("-mill_plugin_module")

    @pytest.mark.parametrize("place", ["mill_plugin_module", "mill_plugin_module:tools", "mill_plugin_module:Tools"])
    def test_a_module_an_object_or_a_class_is_a_plugin(self, mill, place) -> None:
        assert "mill_target" in discover(place).targets

    def test_a_module_without_a_dot_needs_no_entry_point(self, tmp_path, monkeypatch) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "looseleaf.py").write_text("HIDET_API = 1\n" + SOURCE.format(name="leaf"))
        try:
            assert "leaf" in discover("looseleaf").targets
        finally:
            sys.modules.pop("looseleaf", None)

    def test_an_entry_point_may_name_an_object(self, mill, tmp_path) -> None:
        points = tmp_path / "mill_dist-1.2.dist-info" / "entry_points.txt"
        points.write_text(points.read_text().replace("_module", "_module:tools"))
        registry = discover("mill")
        assert "mill_target" in registry.targets and not problems(registry)

    def test_a_missing_object_is_a_problem_at_import(self, mill) -> None:
        (problem,) = problems(discover("mill_plugin_module:tolls"))
        assert "disabled at import: AttributeError" in problem and "tolls" in problem

    def test_leaving_out_what_is_not_there_is_a_problem_with_the_nearest_name(self, mill) -> None:
        (problem,) = [text for text in problems(discover("-mil")) if "HIDET_PLUGINS" in text]
        assert "HIDET_PLUGINS leaves out 'mil', which is not installed; did you mean 'mill'?" in problem

    def test_core_stays(self) -> None:
        registry = discover("-core")
        assert "matmul" in registry.operators
        assert any("leaves out 'core'" in text for text in problems(registry))


class TestBlocks:
    @pytest.mark.parametrize("plugin", [Loom, Loom(), SimpleNamespace(HIDET_API=1, hidet_targets=Loom().hidet_targets)])
    def test_an_object_is_active_in_the_block_alone(self, plugin) -> None:
        before = load_registry()
        with use(plugin) as registry:
            assert "loom" in registry.targets
            assert load_registry() is registry
        assert load_registry() is before and "loom" not in before.targets

    def test_compilations_take_the_registry_of_the_block(self, monkeypatch) -> None:
        with use("hidet.cpu._plugin") as registry:
            assert make_context("cpu", {"cache": False}).registry is registry

    def test_a_target_that_calls_itself_otherwise_is_refused(self) -> None:
        """Nothing that is for it would be found."""

        class Alias:
            HIDET_API = 1

            def hidet_targets(self):
                return [TargetSpec(name="abacus", load="hidet.cpu.target:CpuTarget")]

        with use(Alias), pytest.raises(PluginError, match=r"target 'abacus' \(plugin .*Alias\"\) calls itself 'cpu'"):
            make_context("abacus", {"cache": False})

    def test_a_module_and_the_name_of_an_entry_point_are_taken_too(self, mill) -> None:
        import mill_plugin_module

        for plugin in (mill_plugin_module, "mill", "mill_plugin_module:tools"):
            with use(plugin) as registry:
                assert "mill_target" in registry.targets

    def test_what_is_active_already_is_not_there_twice(self, mill, monkeypatch) -> None:
        import mill_plugin_module

        monkeypatch.setenv("HIDET_PLUGINS", "mill")
        with use(mill_plugin_module) as registry, use("mill") as inner:
            for each in (registry, inner):
                assert [record.owner.plugin for record in each.plugins] == ["core", "mill"]

    def test_two_objects_of_a_class_are_two_plugins(self) -> None:
        first = SimpleNamespace(HIDET_API=1, hidet_targets=Loom().hidet_targets)
        second = SimpleNamespace(HIDET_API=1, hidet_targets=lambda: [TargetSpec(name="mill", load="json:loads")])
        with use(first), use(second) as registry:
            assert {"loom", "mill"} <= registry.targets.keys()
            assert registry.owners["targets", "loom"] != registry.owners["targets", "mill"]

    def test_blocks_nest_and_the_inner_one_counts(self) -> None:
        loom = Loom()
        with use(loom):
            with without(loom) as inner:
                assert "loom" not in inner.targets
            assert "loom" in load_registry().targets

    def test_without_leaves_out_by_name(self, mill, monkeypatch) -> None:
        monkeypatch.setenv("HIDET_PLUGINS", "mill")
        with without("mill") as registry:
            assert "mill_target" not in registry.targets

    def test_an_error_in_the_block_ends_it(self) -> None:
        with pytest.raises(KeyError), use(Loom()):
            raise KeyError("mine")
        assert "loom" not in load_registry().targets

    def test_other_threads_see_nothing_of_it(self) -> None:
        inside, may_end = threading.Event(), threading.Event()
        seen: list[bool] = []

        def other() -> None:
            with use(Loom()) as registry:
                seen.append("loom" in registry.targets)
                inside.set()
                may_end.wait(10)
                seen.append("loom" in load_registry().targets)

        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
        seen.append("loom" in load_registry().targets)
        may_end.set()
        thread.join()
        assert seen == [True, False, True]

    def test_a_broken_plugin_warns_and_the_block_runs(self) -> None:
        broken = SimpleNamespace(HIDET_API=1, hidet_targets=lambda: [1 / 0])
        with pytest.warns(PluginWarning, match="hidet_targets raised ZeroDivisionError"), use(broken) as registry:
            assert "matmul" in registry.operators
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # what was warned about is not told again
                with use(Loom()):
                    pass

    def test_what_is_no_plugin_says_so(self) -> None:
        with pytest.warns(PluginWarning, match="does not state HIDET_API"), use(object()):
            pass

    def test_strict_mode_raises_where_the_block_begins(self, monkeypatch) -> None:
        monkeypatch.setenv("HIDET_STRICT_PLUGINS", "1")
        with pytest.raises(PluginError, match=r"hidet.plugins.without leaves out 'mil'"), without("mil"):
            raise AssertionError("the block must not begin")

    def test_they_are_names_of_hidet(self) -> None:
        assert hidet.plugins.use is use and hidet.plugins.without is without
