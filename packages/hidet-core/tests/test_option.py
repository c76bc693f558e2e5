"""Settings of `hidet.option` change what they say, and what is set in a block is forgotten behind it."""

from __future__ import annotations

import asyncio

import pytest

import hidet
from hidet import option, plugins
from hidet.context import make_context, options_from
from hidet.cpu.workers import _wanted_workers
from hidet.errors import OptionError
from hidet.plugins.specs import OptionSpec


@pytest.fixture(autouse=True)
def _own_settings():
    with option.context():
        yield


def test_what_is_set_in_a_block_is_forgotten_behind_it(tmp_path) -> None:
    with option.context() as block:
        option.search_space(2)
        block.set_option("cache_dir", tmp_path)
        assert (block.get_option("search_space"), option.get_cache_dir()) == (2, str(tmp_path))
        with option.context():
            option.search_space(1)
        assert option.get_search_space() == 2
    assert option.get_search_space() == 0
    with pytest.raises(KeyError), option.context():
        option.cache_operator(False)
        raise KeyError
    assert option.get_cache_operator()


def test_tasks_have_settings_of_their_own() -> None:
    async def level(number: int) -> int:
        option.search_space(number)
        await asyncio.sleep(0)
        return option.get_search_space()

    async def both() -> list[int]:
        return await asyncio.gather(level(1), level(2))

    assert asyncio.run(both()) == [1, 2]
    assert option.get_search_space() == 0


def test_stages_are_written_where_settings_say(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("HIDET_DUMP", raising=False)
    option.cache_dir(tmp_path / "cache")
    option.save_lower_ir()
    assert option.get_save_lower_ir() and options_from(None).dump == str(tmp_path / "cache" / "ir")
    x = hidet.symbol([7])
    hidet.trace_from(hidet.ops.tanh(x)).build()
    assert any((tmp_path / "cache" / "ir").rglob("*"))
    option.dump(tmp_path / "elsewhere")
    assert options_from(None).dump == str(tmp_path / "elsewhere")
    assert options_from({"dump": "own"}).dump == "own"
    option.save_lower_ir(False)
    assert options_from(None).dump is None


def test_workers_that_compile_for_the_host_are_as_many_as_settings_say(monkeypatch) -> None:
    monkeypatch.setenv("HIDET_NUM_WORKERS", "3")
    assert _wanted_workers(100, None) == 3
    option.num_local_workers(2)
    assert (_wanted_workers(100, None), option.get_parallel_build()) == (2, True)
    option.parallel_build(False)
    assert (_wanted_workers(100, None), option.get_parallel_build()) == (0, False)
    assert _wanted_workers(100, 5) == 5, "what a call says counts first"
    with pytest.raises(OptionError, match="num_local_workers is a number of processes or None, got -1"):
        option.num_local_workers(-1)


def test_a_machine_is_what_a_target_without_one_is_compiled_for() -> None:
    option.cpu.arch("haswell")
    assert make_context("cpu").machine == "haswell"
    assert make_context("cpu:znver3").machine == "znver3"
    assert option.get_option("cpu.arch") == option.cpu.get_arch() == "haswell"
    option.set_option("cpu.arch", "auto")
    assert make_context("cpu").machine is None


def test_an_optimised_graph_keeps_the_settings_of_its_block(tmp_path) -> None:
    x = hidet.symbol([5])
    with option.context():
        option.dump(tmp_path / "stages")
        graph = hidet.graph.optimize(hidet.trace_from(hidet.ops.tanh(x)))
    graph.build()
    assert any((tmp_path / "stages").rglob("*"))


def test_all_settings_are_kept_and_restored() -> None:
    before = option.dump_options()
    option.cache_operator(False)
    option.remember("loom.cloth", "linen")
    option.restore_options(before)
    assert option.get_cache_operator() and option.remembered("loom.cloth", None) is None


@pytest.mark.parametrize("name", ["serch_space", "cuda.ark", "context", ""])
def test_an_unknown_option_is_an_error(name) -> None:
    assert option.is_option_exist("cuda.arch") and not option.is_option_exist(name)
    with pytest.raises(OptionError, match="is unknown"):
        option.get_option(name)


class Wheel:
    """A plug-in with an option."""

    HIDET_API = 1

    def hidet_options(self):
        yield OptionSpec(name="acme.depth", type=int, default=3, affects_cache=False, doc="How deep.")


def test_options_of_plug_ins_are_set_for_all_compilations_that_follow() -> None:
    with plugins.use(Wheel), option.context():
        assert option.get_option("acme.depth") == 3
        option.set_option("acme.depth", 5)
        assert make_context("cpu").option("acme.depth") == 5
        assert make_context("cpu", {"acme.depth": 7}).option("acme.depth") == 7, "its own come first"
        with pytest.raises(OptionError, match=r"option 'acme\.depth' takes int, got 'far'"):
            option.set_option("acme.depth", "far")
    assert not option.is_option_exist("acme.depth")
