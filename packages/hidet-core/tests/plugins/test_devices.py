"""Which target is for the tensors of a device, and which one is of a kind: the registry says, whoever registered it."""

from __future__ import annotations

import importlib.util

import pytest

from hidet.errors import OptionError
from hidet.plugins.host import discover
from hidet.plugins.registry import Registry

SOURCE = """
from hidet.plugins import TargetSpec

def hidet_targets():
    return [
        TargetSpec(name="abacus", kind="cpu", load="json:loads"),
        TargetSpec(name="loom", devices=("yarn", "thread"), kind="gpu", load="json:loads"),
        TargetSpec(name="mill", devices=("yarn", "corn"), kind="gpu", load="json:loads"),
    ]
"""


@pytest.fixture
def registry(install_plugin) -> Registry:
    install_plugin("textile", SOURCE)
    return discover("textile")


@pytest.mark.parametrize(
    ("device", "target"), [("yarn", "loom"), ("yarn:3", "loom:3"), ("thread:0", "loom:0"), ("corn:1", "mill:1")]
)
def test_the_first_target_that_serves_a_type_of_devices_is_taken_with_the_number(registry, device, target) -> None:
    assert registry.target_of_device(device) == target


def test_the_types_of_devices_are_those_of_all_targets_once(registry) -> None:
    assert registry.device_types == ("yarn", "thread", "corn")


def test_a_device_that_no_target_is_for_is_refused_with_those_that_are(registry) -> None:
    with pytest.raises(OptionError, match="no target is for devices of type 'wool'") as caught:
        registry.target_of_device("wool:0")
    assert caught.value.hint == "known: corn, thread, yarn"


def test_a_second_target_for_a_type_of_devices_is_remarked_on(registry) -> None:
    (remark,) = [problem for record in registry.plugins for problem in record.problems]
    assert "target 'mill' is for devices of type 'yarn', which target 'loom' is asked for" in remark.message
    assert remark.is_remark


def test_a_replaced_target_serves_nothing_more(install_plugin) -> None:
    install_plugin("textile", SOURCE)
    replacing = 'TargetSpec(name="spinner", replaces="loom", devices=("thread",), load="json:loads")'
    install_plugin("weaver", f"from hidet.plugins import TargetSpec\ndef hidet_targets():\n    return [{replacing}]")
    registry = discover("textile,weaver")
    assert [registry.target_of_device(kind) for kind in ("yarn", "thread")] == ["mill", "spinner"]


def test_the_first_target_of_a_kind_is_taken(registry) -> None:
    assert [registry.target_of_kind(kind) for kind in ("cpu", "gpu")] == ["abacus", "loom"]


def test_where_no_target_is_there_the_error_names_the_wheel_that_has_one(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    registry = discover("")
    with pytest.raises(OptionError, match="no target is for devices of type 'cuda'") as caught:
        registry.target_of_device("cuda:1")
    assert caught.value.hint == "pip install hidet-cuda"
    with pytest.raises(OptionError, match="no target of kind 'gpu' is installed") as caught:
        registry.target_of_kind("gpu")
    assert caught.value.hint == "pip install hidet-cuda"
