"""`hidet.frontend` by the name of hidet 0.6: `from_onnx` of hidet-onnx, `from_torch` of hidet-torch."""

from __future__ import annotations

from typing import Any

from hidet import frontend


def __getattr__(name: str) -> Any:
    return getattr(frontend, name)
