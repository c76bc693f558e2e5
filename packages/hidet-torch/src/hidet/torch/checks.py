"""What `hidet doctor` says of torch: its build, read without importing it, and whether torch finds the backend."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from hidet.doctor import Check
from hidet.plugins.host import load_registry
from hidet.plugins.isolation import Failure, attempt
from hidet.plugins.specs import TargetSpec

_BUILD = re.compile(r"^(cuda|hip|xpu)(?:: [^=]+)? = '([^']+)'", re.MULTILINE)
_BACKENDS = "torch_dynamo_backends"


def check_torch() -> Iterator[Check]:
    """The build, and the entry point through which torch finds the backend."""
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        yield Check("torch build", "fail", "torch cannot be imported", "pip install torch")
        return
    yield _build(Path(found.submodule_search_locations[0]) / "version.py")
    if not metadata.entry_points(group=_BACKENDS, name="hidet"):
        detail = "torch does not know the backend 'hidet': its entry point is missing"
        yield Check("torch backend", "fail", detail, "pip install --force-reinstall --no-deps hidet-torch")


def _build(version_file: Path) -> Check:
    """Of which kind torch is, as its own version file says."""
    text = version_file.read_text() if version_file.exists() else ""
    kinds = [f"{kind.upper()} {version}" for kind, version in _BUILD.findall(text)]
    if kinds:
        return Check("torch build", "ok", f"for {', '.join(kinds)}")
    devices = [line for spec in load_registry().targets.values() if "cuda" in spec.devices for line in _lines(spec)]
    if devices:
        hint = "install a build of torch for CUDA: https://pytorch.org/get-started/locally"
        return Check("torch build", "warn", f"for CPUs alone, though there is {devices[0]}", hint)
    return Check("torch build", "ok", "for CPUs alone")


def _lines(spec: TargetSpec) -> list[str]:
    """The devices of a target; what is wrong with them the doctor says elsewhere."""
    found = attempt(spec.list_machines)
    return [] if isinstance(found, Failure) else found
