"""What only scripts of hidet 0.6 call is an attribute of hidet's modules, acts where it can, and warns elsewhere."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

import hidet
from hidet.compat.option import SETTINGS
from hidet.errors import HidetWarning


@pytest.fixture(autouse=True)
def _own_settings():
    with hidet.option.context():
        yield


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.filterwarnings("ignore::hidet.errors.HidetWarning")
def test_a_setting_that_nothing_reads_keeps_what_it_is_set_to(name) -> None:
    assert hidet.option.get_option(name) == SETTINGS[name].default
    with hidet.option.context():
        hidet.option.set_option(name, "something")
        assert hidet.option.get_option(name) == "something"
    assert hidet.option.get_option(name) == SETTINGS[name].default


@pytest.mark.parametrize("name", [name for name in SETTINGS if SETTINGS[name].true])
def test_a_setting_that_says_how_things_are_does_not_warn(name) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in SETTINGS[name].true:
            hidet.option.set_option(name, value)


def test_a_warning_is_at_the_line_of_the_script_and_says_what_to_use() -> None:
    with pytest.warns(HidetWarning, match=r"hidet\.option\.parallel_tune\(1, 2, 3\) is accepted") as told:
        hidet.option.parallel_tune(1, 2, 3)
    assert told[0].filename == __file__
    assert "hidet.tune" in told[0].message.hint


def test_graphs_are_drawn_beside_the_cache_where_a_setting_says_so(tmp_path) -> None:
    hidet.option.cache_dir(str(tmp_path))
    graph = hidet.trace_from(hidet.ops.matmul(hidet.symbol([2, 3]), hidet.ones([3, 4])))
    graph.build()
    assert not (tmp_path / "graphs").exists()
    hidet.option.debug_dump_graph_visual()
    graph.build()
    assert list((tmp_path / "graphs").glob("*.json")) and hidet.option.get_debug_dump_graph_visual()


def test_passes_write_their_graphs_in_the_block_of_a_context(tmp_path) -> None:
    graph = hidet.trace_from(hidet.ops.tanh(hidet.symbol([3])))
    with hidet.graph.PassContext() as context:
        assert hidet.graph.PassContext.current() is context
        context.save_graph_instrument(tmp_path / "graphs").set_mma("mma")
        hidet.graph.optimize(graph).build()
    assert any((tmp_path / "graphs").rglob("*"))
    assert hidet.option.get_dump() is None
    assert hidet.graph.PassContext.current() is not context


def test_a_compiled_graph_is_saved_and_loaded_by_the_old_names(tmp_path) -> None:
    compiled = hidet.trace_from(hidet.ops.relu(hidet.symbol([2]))).build()
    hidet.save_compiled_graph(compiled, str(tmp_path / "relu.hidet"))
    loaded = hidet.load_compiled_graph(str(tmp_path / "relu.hidet"))
    assert loaded(hidet.asarray([-1.0, 2.0]).numpy()).tolist() == [0.0, 2.0]


def test_without_this_wheel_its_settings_say_how_to_install_it() -> None:
    code = (
        "import importlib.util, os\n"
        "os.environ['HIDET_PLUGINS'] = ''\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'hidet.compat' else find(name, *more)\n"
        "import hidet\n"
        "try: hidet.option.parallel_k('search')\n"
        "except AttributeError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "settings of hidet 0.6 need: pip install hidet-compat" in said
