"""Real, tiny plug-in distributions: a module and a .dist-info folder on sys.path."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

InstallPlugin = Callable[..., str]


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstallPlugin]:
    """`install_plugin(name, source)` installs distribution `NAME-dist` with entry point `NAME`; returns the name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def install(name: str, source: str, *, api: str = "HIDET_API = 1", requires: tuple[str, ...] = ()) -> str:
        module = f"{name}_plugin_module"
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(api + "\n" + textwrap.dedent(source))
        info = tmp_path / f"{name}_dist-1.2.dist-info"
        info.mkdir()
        metadata = ["Metadata-Version: 2.1", f"Name: {name}-dist", "Version: 1.2"]
        metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
        (info / "METADATA").write_text("\n".join(metadata) + "\n")
        (info / "entry_points.txt").write_text(f"[hidet.plugins]\n{name} = {module}\n")
        return name

    yield install
    for module in modules:
        sys.modules.pop(module, None)
