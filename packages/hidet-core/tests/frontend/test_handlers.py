"""Handlers of plug-ins, beside a front-end's own table."""

from __future__ import annotations

import re

import pytest

from hidet.errors import PluginError, PluginWarning, UnsupportedOp
from hidet.frontend import plugin_handlers
from hidet.plugins import HandlerSpec
from hidet.plugins.host import discover
from hidet.plugins.registry import Registry

SOURCE = """
from hidet.errors import UnsupportedOp
from hidet.plugins import FrontendSpec, HandlerSpec

def hidet_frontends():
    return [FrontendSpec(name="yarn", accepts=lambda model: False, load="json:loads")]

def hidet_handlers():
    def spec(operator, load, **fields):
        return HandlerSpec(frontend="yarn", operator=operator, load=load, **fields)

    here = "spinner_plugin_module:"
    yield spec("acme.Twist", here + "twist")
    yield spec("acme.Twist", here + "twist_again", since_version=3)
    yield spec("acme.Declined", here + "decline")
    yield spec("acme.Broken", here + "fail")
    yield spec("acme.Absent", "nowhere.at_all:emit")
    yield spec("Knit", here + "twist")
    yield spec("Purl", here + "twist", replaces="yarn.Purl")
    yield HandlerSpec(frontend="wool", operator="Knit", load=here + "twist")

def twist(emitter, *inputs, **attributes):
    return ("twist", emitter, inputs, attributes)

def twist_again(emitter):
    return "twist again"

def decline(emitter):
    raise UnsupportedOp("not these")

def fail(emitter):
    return 1 // 0
"""


@pytest.fixture
def registry(install_plugin) -> Registry:
    install_plugin("spinner", SOURCE)
    return discover("spinner")


@pytest.fixture
def strict(install_plugin) -> Registry:
    install_plugin("spinner", SOURCE.replace('yield spec("Knit"', 'if False: yield spec("Knit"'))
    registry = discover("spinner", is_strict=True)
    assert registry.is_strict
    return registry


def refused() -> pytest.WarningsRecorder:
    return pytest.warns(
        PluginWarning,
        match=re.escape(
            """(plugin "spinner"): handler 'yarn.Knit' refused: front-end 'yarn' has one of its own; say """
            "replaces='yarn.Knit' to take its place"
        ),
    )


def test_handlers_are_found_by_operator_the_newest_version_first(registry) -> None:
    found = plugin_handlers("yarn", (), registry)
    assert [since for since, _ in found["acme.Twist"]] == [3, 1]
    newest, oldest = (handler for _, handler in found["acme.Twist"])
    assert newest("e") == "twist again"
    assert oldest("e", 1, axis=2) == ("twist", "e", (1,), {"axis": 2})
    assert "Knit" in found
    assert set(plugin_handlers("wool", (), registry)) == {"Knit"}


def test_a_handler_of_an_operator_that_the_front_end_has_says_that_it_replaces_it(registry) -> None:
    with refused():
        found = plugin_handlers("yarn", {"Knit", "Purl", "Stitch"}, registry)
    assert "Knit" not in found and "Purl" in found


def test_a_refused_handler_is_an_error_where_plugins_are_strict(strict) -> None:
    with pytest.raises(PluginError, match=r"handler 'yarn.acme.Twist-3' refused"):
        plugin_handlers("yarn", {"acme.Twist"}, strict)


def test_a_handler_declines_by_an_error_of_hidet(registry) -> None:
    ((_, handler),) = plugin_handlers("yarn", (), registry)["acme.Declined"]
    with pytest.raises(UnsupportedOp, match=r"^not these$"):
        handler("e")


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ("acme.Broken", r"handler 'yarn.acme.Broken' raised ZeroDivisionError"),
        ("acme.Absent", r"handler 'yarn.acme.Absent' raised PluginError: .* cannot load 'nowhere.at_all:emit'"),
    ],
)
def test_a_handler_that_fails_is_named_with_its_plugin(registry, operator: str, message: str) -> None:
    ((_, handler),) = plugin_handlers("yarn", (), registry)[operator]
    with (
        pytest.warns(PluginWarning, match=message),
        pytest.raises(UnsupportedOp, match=r'^spinner-dist 1.2 \(plugin "spinner"\): ' + message),
    ):
        handler("e")


@pytest.mark.parametrize("operator", ["acme.Broken", "acme.Absent"])
def test_a_handler_that_fails_is_an_error_where_plugins_are_strict(strict, operator: str) -> None:
    ((_, handler),) = plugin_handlers("yarn", (), strict)[operator]
    with pytest.raises(PluginError, match=f"handler 'yarn.{operator}' raised"):
        handler("e")


def test_a_handler_for_a_front_end_that_is_not_there_is_a_remark(registry) -> None:
    (record,) = [record for record in registry.plugins if record.owner.plugin == "spinner"]
    (problem,) = record.problems
    assert problem.message.startswith("handler 'wool.Knit' is for no front-end of that name; ")
    assert problem.is_remark


def test_the_first_plugin_keeps_an_operator_unless_another_replaces_it(install_plugin) -> None:
    source = """
    from hidet.plugins import HandlerSpec
    def hidet_handlers():
        return [HandlerSpec(frontend="torch", operator="acme.swish.default", load="{load}", {fields})]
    """
    install_plugin("first", source.format(load="json:loads", fields=""))
    install_plugin("second", source.format(load="json:dumps", fields=""))
    install_plugin("third", source.format(load="math:sqrt", fields='replaces="torch.acme.swish.default"'))
    registry = discover("first,second")
    assert registry.handlers["torch.acme.swish.default"].load == "json:loads"
    messages = [problem.message for record in registry.plugins for problem in record.problems]
    assert any("handler 'torch.acme.swish.default' refused: first-dist 1.2" in message for message in messages)
    assert discover("first,third").handlers["torch.acme.swish.default"].load == "math:sqrt"


def test_a_handler_is_named_after_what_it_handles() -> None:
    spec = HandlerSpec(frontend="onnx", operator="acme.ai.Swish", since_version=2, load="json:loads")
    assert spec.name == "onnx.acme.ai.Swish-2"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"operator": "acme::swish"}, "operator is 'acme::swish', expected a name such as 'acme.swish.default'"),
        ({"frontend": 3}, "frontend is 3, expected a name such as 'torch'"),
        ({"since_version": 0}, "since_version is 0, expected an integer of at least 1"),
        ({"replaces": "torch.add"}, "replaces is 'torch.add', expected 'torch.acme.swish.default' or None"),
        ({"load": "json.loads"}, "load is 'json.loads', expected 'package.module:attribute'"),
    ],
)
def test_a_handler_spec_checks_itself(fields: dict[str, object], message: str) -> None:
    given = {"frontend": "torch", "operator": "acme.swish.default", "load": "json:loads", **fields}
    with pytest.raises(PluginError, match=re.escape(message)):
        HandlerSpec(**given)
