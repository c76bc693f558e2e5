"""Where a wheel of hidet is missing, the error says which. user-walk.md section 2."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

import pytest

from hidet.errors import ImportFailed, OptionError
from hidet.plugins import wheels
from hidet.plugins.host import discover


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing but hidet-core was installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cpu", "pip install hidet-cpu"),
        ("cuda", "pip install hidet-cuda"),
        ("gpu", "did you mean 'cuda'? pip install hidet-cuda"),
    ],
)
def test_a_missing_target_names_its_wheel(name: str, hint: str) -> None:
    """user-walk.md section 6, row 9."""
    with pytest.raises(OptionError) as caught:
        discover("").target(name)
    assert caught.value.hint == hint


def test_a_gpu_is_cuda_where_that_is_installed() -> None:
    """user-walk.md section 6, row 9."""
    assert wheels.target_hint("gpu", ["cpu", "cuda"]) == "did you mean 'cuda'?"
    assert wheels.target_hint("cdua", ["cpu", "cuda"]) == "did you mean 'cuda'?"


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize(
    ("model", "wheel"),
    [
        ("model.onnx", "hidet-onnx"),
        ("model.keras", "hidet-tensorflow"),
        ("model.mlir", "hidet-stablehlo"),
        (type("Model", (), {"__module__": "keras.src.models.functional"})(), "hidet-tensorflow"),
        (Path("model.onnx"), "hidet-onnx"),
        (type("Net", (type("Module", (), {"__module__": "torch.nn.modules.module"}),), {})(), "hidet-torch"),
        (type("ModelProto", (), {"__module__": "onnx.onnx_ml_pb2"})(), "hidet-onnx"),
    ],
)
def test_a_model_without_front_end_names_the_wheel_that_has_one(model: object, wheel: str) -> None:
    with pytest.raises(ImportFailed) as caught:
        discover("").frontend_for(model)
    assert caught.value.hint == f"pip install {wheel}"


def test_a_model_of_nobody_names_no_wheel() -> None:
    with pytest.raises(ImportFailed) as caught:
        discover("").frontend_for(types.SimpleNamespace())
    assert caught.value.hint is None


def test_a_wheel_that_is_installed_is_not_to_be_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("HIDET_PLUGINS", "")
    with pytest.raises(OptionError, match="hidet-cpu is installed, but not active: HIDET_PLUGINS= may leave it out"):
        discover("").target("cpu")


def test_the_table_names_the_wheels_that_the_package_knows() -> None:
    packages = Path(__file__).parents[3]
    known = wheels.wheels_of_modules()
    same = ("cpu", "cuda", "onnx", "report", "stablehlo", "tensorflow", "testing", "torch")
    others = {
        "compat": "hidet-compat",
        "jax": "hidet-stablehlo",
        "lang": "hidet-script",
        "nn": "hidet-compat",
        "tile": "hidet-gpu",
        "tuning": "hidet-tune",
        "utils": "hidet-script",
    }
    assert known == {name: f"hidet-{name}" for name in same} | others
    assert all(any((packages / wheel / "src" / "hidet").glob(f"{name}*")) for name, wheel in known.items())


def test_a_variable_that_nobody_reads_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIDET_REPORT", raising=False)
    monkeypatch.setenv("HIDET_LOG", "fusion")
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    assert wheels.unread_variables() == ["HIDET_LOG is set, and nothing reads it: pip install hidet-report"]
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: object())
    assert wheels.unread_variables() == []


def test_commands_and_members_of_missing_wheels_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    assert wheels.command_hint("profile", ()) == "pip install hidet-report"
    assert wheels.command_hint("comple", ["compile"]) == "did you mean 'compile'?"
    assert wheels.member_hint("hidet.runtime.CompileReport.html") == ": pip install hidet-report"
    assert wheels.member_hint("hidet.runtime.CompileReport.other") == ""
