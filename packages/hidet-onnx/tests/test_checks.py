"""What `hidet doctor` says of ONNX Runtime."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hidet.onnx import checks


@pytest.mark.parametrize(
    ("installed", "status"),
    [({}, "none"), ({"onnxruntime": "1.30"}, "ok"), ({"onnxruntime": "1.30", "onnxruntime-gpu": "1.29"}, "warn")],
)
def test_no_runtime_one_and_two_that_overwrite_each_other(
    installed: dict[str, str], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def distributions(name: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(version=installed[name])] if name in installed else []

    monkeypatch.setattr(checks.metadata, "distributions", distributions)
    (check,) = checks.check_onnxruntime()
    assert check.status == status
    assert all(f"{name} {version}" in check.detail for name, version in installed.items())
