"""What `hidet doctor` says of ONNX: whether ONNX Runtime is there to be compared with."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

from hidet.doctor import Check

_RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")


def check_onnxruntime() -> Iterator[Check]:
    """Which distribution of ONNX Runtime is installed. Several overwrite each other's files."""
    names = {name: metadata.distributions(name=name) for name in _RUNTIMES}
    found = [f"{name} {each.version}" for name, distributions in names.items() for each in list(distributions)[:1]]
    if not found:
        hint = "`hidet bench --against onnxruntime` needs it; nothing else does"
        yield Check("onnxruntime", "none", "not installed", hint)
    elif len(found) > 1:
        yield Check("onnxruntime", "warn", f"{', '.join(found)} own the same files", "keep one of them")
    else:
        yield Check("onnxruntime", "ok", found[0])
