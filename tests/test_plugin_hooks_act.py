"""What plug-ins offer through hooks takes effect in a compilation."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

from hidet import dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, make_context
from hidet.errors import OptionError
from hidet.graph import Graph, GraphBuilder, TensorType
from hidet.plugins.host import discover

PLUGIN = """
    from hidet.plugins import OptionSpec, PassSpec, RewriteSpec

    HIDET_API = 1
    built = []

    def hidet_options():
        yield OptionSpec(name="acts.offset", type=int, default=1, doc="Added to results.", affects_cache=True)

    def hidet_rewrites():
        yield RewriteSpec(name="acts.sub_is_add", stage="simplify", load="hidet_acts._plugin:RULES")

    def hidet_kernel_built(name, program, binary, cached):
        built.append((name, type(program).__name__, len(binary) > 0, cached))

    def _sub(site):
        return site.emit("add", *site.node.inputs)

    RULES = {"sub": [_sub]}
"""


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The plug-in, installed for all tests of this file: registries are kept for the life of the process."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "hidet_acts").mkdir()
    (folder / "hidet_acts" / "_plugin.py").write_text(textwrap.dedent(PLUGIN))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin,hidet_acts._plugin")
        patch.setenv("HIDET_CACHE_DIR", str(folder / "cache"))
        yield


def _difference(ctx: CompileContext) -> Graph:
    builder = GraphBuilder(ctx.registry.operators)
    x, y = (builder.input(TensorType(dtypes.f32, (4,)), name) for name in "xy")
    return builder.build([builder.emit("sub", x, y)])


def test_rewrites_change_graphs() -> None:
    ctx = make_context("cpu")
    compiled = compile_graph(_difference(ctx), ctx)
    ones = np.ones(4, np.float32)
    assert np.array_equal(compiled(ones, ones), ones + ones)


def test_observers_hear_of_every_module() -> None:
    ctx = make_context("cpu", {"acts.offset": 7})
    built = sys.modules["hidet_acts._plugin"].built
    built.clear()
    for cached in (False, True):
        compile_graph(_difference(ctx), ctx)
        assert [entry[1:] for entry in built] == [("Module", True, cached)]
        built.clear()


def test_options_of_plugins_are_checked_read_and_part_of_the_cache_key() -> None:
    assert make_context("cpu").option("acts.offset") == 1
    assert make_context("cpu", {"acts.offset": 5, "threads": 2}).option("acts.offset") == 5
    with pytest.raises(OptionError, match=r"option 'acts\.ofset' is unknown\s+hint: did you mean 'acts\.offset'"):
        make_context("cpu", {"acts.ofset": 5})
    with pytest.raises(OptionError, match=r"option 'acts\.offset' takes int, got 'five'"):
        make_context("cpu", {"acts.offset": "five"})
    counts = []
    for offset in (11, 11, 12):
        ctx = make_context("cpu", {"acts.offset": offset})
        counts.append(compile_graph(_difference(ctx), ctx).report().cached_modules)
    assert counts == [0, 1, 0]


def test_the_registry_of_plugins_is_found_by_name() -> None:
    assert "cpu" in discover("hidet.cpu._plugin").targets
