"""Specs refuse bad values when they are made, and load their implementation only when asked."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from hidet.errors import OptionError, PluginError
from hidet.graph.operator import OperatorSpec
from hidet.plugins import FrontendSpec, OptionSpec, PassSpec, RewriteSpec, ScheduleSpec, TargetSpec


def option(**changes: object) -> OptionSpec:
    values = {"name": "cpu.threads", "type": int, "default": 1, "doc": "Threads.", "affects_cache": False}
    return OptionSpec(**{**values, **changes})


def of_priority(priority: int | None, load: str = "m:f") -> ScheduleSpec:
    given = {} if priority is None else {"priority": priority}
    return ScheduleSpec(name="s", ops=("a",), targets=("*",), load=load, **given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TargetSpec(name="two words", load="m:f"), "name is 'two words', expected letters"),
        (lambda: TargetSpec(name=7, load="m:f"), "name is 7"),
        (lambda: TargetSpec(name="t", load="m.f"), "load is 'm.f', expected 'package.module:attribute'"),
        (lambda: TargetSpec(name="t", load=print), "load is <built-in function print>"),
        (lambda: TargetSpec(name="t", load="m:f", replaces=""), "replaces is ''"),
        (
            lambda: ScheduleSpec(name="s", ops="matmul", targets=("cpu",), load="m:f"),
            "ops is 'matmul', expected a tuple",
        ),
        (lambda: ScheduleSpec(name="s", ops=(), targets=("cpu",), load="m:f"), r"ops is \(\)"),
        (
            lambda: ScheduleSpec(name="s", ops=("family:",), targets=("cpu",), load="m:f"),
            r"ops is \('family:',\), expected a tuple of names, families as 'family:reduction' among them, or ",
        ),
        (lambda: ScheduleSpec(name="s", ops=("kin:sum",), targets=("cpu",), load="m:f"), r"ops is \('kin:sum',\)"),
        (lambda: ScheduleSpec(name="s", ops=("a",), targets=("family:a",), load="m:f"), "targets is"),
        (
            lambda: OperatorSpec(name="o", inputs=("x",), family="a b"),
            "OperatorSpec 'o': family is 'a b', expected",
        ),
        (lambda: OperatorSpec(name="o", inputs=("x",), family=""), "OperatorSpec 'o': family is ''"),
        (
            lambda: OperatorSpec(name="o", inputs=("x",), layout="nhwc"),
            "layout is 'nhwc', expected 'channels-last', 'bshd', 'follows' or None",
        ),
        (lambda: ScheduleSpec(name="s", ops=("a",), targets=(3,), load="m:f"), r"targets is \(3,\)"),
        (lambda: ScheduleSpec(name="s", ops=("a",), targets=("*",), priority="9", load="m:f"), "priority is '9'"),
        (lambda: of_priority(99), "priority is 99, expected 100 to 999, .* or -999 to -1"),
        (lambda: of_priority(0), "priority is 0"),
        (lambda: of_priority(1001), "priority is 1001"),
        (lambda: of_priority(-1000), "priority is -1000"),
        (lambda: of_priority(100, "hidet.acme:f"), "priority is 100, expected 0 to 99"),
        (lambda: ScheduleSpec(name="s", ops=("a",), targets=("*",), prologue="all", load="m:f"), "prologue is 'all'"),
        (lambda: ScheduleSpec(name="s", ops=("a",), targets=("*",), epilogue="row", load="m:f"), "epilogue is 'row'"),
        (lambda: PassSpec(name="p", level="tree", load="m:f"), "level is 'tree', expected 'graph' or 'program'"),
        (lambda: PassSpec(name="p", level="graph", after="x", load="m:f"), "after is 'x'"),
        (lambda: PassSpec(name="p", level="graph", targets=("*",), load="m:f"), "targets is"),
        (
            lambda: ScheduleSpec(name="s", ops=("a",), load="m:f"),
            r"targets is \(\), .* kinds=\('cpu',\)",
        ),
        (lambda: ScheduleSpec(name="s", ops=("a",), kinds="gpu", load="m:f"), "kinds is 'gpu', expected a tuple"),
        (lambda: PassSpec(name="p", level="graph", kinds=("tpu",), load="m:f"), "kinds is .*'cpu' and 'gpu'"),
        (lambda: TargetSpec(name="t", kind="tpu", load="m:f"), "kind is 'tpu', expected 'cpu', 'gpu' or None"),
        (lambda: RewriteSpec(name="r", stage=None, load="m:f"), "stage is"),
        (lambda: TargetSpec(name="t", aliases=["x"], load="m:f"), "aliases is"),
        (lambda: TargetSpec(name="t", devices="cuda", load="m:f"), "devices is 'cuda', expected a tuple of names"),
        (lambda: FrontendSpec(name="f", accepts=True, load="m:f"), "accepts is True"),
        (lambda: FrontendSpec(name="f", accepts=callable, load="m:f", device="cuda"), "device is 'cuda'"),
        (lambda: FrontendSpec(name="f", accepts=callable, load="m:f", settings={}), "settings is {}"),
        (lambda: option(name="threads"), "expected a namespace and a name"),
        (lambda: option(type=list), "type is <class 'list'>"),
        (lambda: option(doc=""), "expected one line that says what the option does"),
        (lambda: option(default="many"), "the default is not valid"),
        (lambda: option(default=3, choices=(1, 2)), "the default is not valid"),
        (lambda: option(targets="cpu"), "targets is 'cpu', expected a tuple"),
    ],
)
def test_a_bad_field_is_named_with_its_value(make, message) -> None:
    with pytest.raises(PluginError, match=message):
        make()


def test_a_rule_of_others_is_asked_before_those_of_hidet_unless_it_says_otherwise() -> None:
    """plugin-friction.md section 2: the README's priority 10 lost against a rule of hidet's."""
    own, other = of_priority(None, "hidet.acme:f"), of_priority(None)
    assert (own.priority, other.priority) == (0, 100)
    assert [of_priority(priority).priority for priority in (100, 999, -1, -999)] == [100, 999, -1, -999]
    assert [of_priority(priority, "hidet.acme:f").priority for priority in (0, 99)] == [0, 99]


def test_specs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TargetSpec(name="t", load="m:f").name = "u"


def test_making_a_spec_imports_nothing_and_resolving_does(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lazily_loaded_rules.py").write_text("class Outer:\n    value = 42\n")
    spec = TargetSpec(name="t", load="lazily_loaded_rules:Outer.value")
    assert "lazily_loaded_rules" not in sys.modules
    assert spec.resolve() == 42


@pytest.mark.parametrize("load", ["no_such_module:f", "json:no_such_attribute", "raising_rules:f"])
def test_whatever_goes_wrong_while_loading_is_a_plugin_error_with_its_cause(load, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "raising_rules.py").write_text("raise RuntimeError('half built')")
    with pytest.raises(PluginError, match=f"TargetSpec 't': cannot load '{load}'") as caught:
        TargetSpec(name="t", load=load).resolve()
    assert caught.value.__cause__ is not None


class TestOptionValues:
    def test_an_int_is_taken_for_a_float(self) -> None:
        value = option(type=float, default=1.0).check(2)
        assert value == 2.0 and type(value) is float

    @pytest.mark.parametrize("value", ["3", 3.0, True, None])
    def test_any_other_type_is_refused_by_name(self, value) -> None:
        with pytest.raises(OptionError, match=r"option 'cpu.threads' takes int, got"):
            option().check(value)

    def test_none_is_valid_where_it_is_the_default(self) -> None:
        assert option(default=None).check(None) is None

    def test_choices_are_listed_when_none_fits(self) -> None:
        with pytest.raises(OptionError, match="takes one of 'on', 'off', got 'maybe'"):
            option(type=str, default="on", choices=("on", "off")).check("maybe")
