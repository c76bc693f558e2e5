"""Small things that scripts of hidet 0.6 call: numbers, times, files, logs, sources."""

from __future__ import annotations

import logging
import operator
import os

import pytest

import hidet
from hidet.errors import LaunchError, OptionError, UnsupportedOp
from hidet.ir.compute import compute, tensor_input
from hidet.lang import f32
from hidet.utils import Timer, cache_dir, cache_file, cdiv, clear_cache_dir, clear_op_cache, factorize, gcd, lcm


@pytest.fixture
def add():
    with hidet.script_module() as module:

        @hidet.script
        def add(a: f32, b: f32) -> f32:
            return a + b

    return module


@pytest.fixture
def twice():
    a = tensor_input("a", "float32", [3])
    return hidet.Task("twice", [a], [compute("c", [3], lambda i: a[i] * 2.0)])


def test_whole_numbers() -> None:
    assert [cdiv(7, 4), cdiv(8, 4), gcd(12, 18), lcm(4, 6)] == [2, 2, 6, 12]
    assert factorize(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36] and factorize(7) == [1, 7]


def test_a_block_is_timed(capsys, tmp_path) -> None:
    with Timer("block", file=str(tmp_path / "times.txt")) as timer:
        assert timer.elapsed_seconds() >= 0
    assert capsys.readouterr().out.startswith("block ")
    assert (tmp_path / "times.txt").read_text().startswith("block ")
    with Timer("quiet", verbose=False):
        pass
    assert capsys.readouterr().out == ""
    assert [Timer.time2str(seconds) for seconds in (0.5, 90.0, 7200.0)] == [
        "500.0 milliseconds",
        "1.5 minutes",
        "2.0 hours",
    ]


def test_files_lie_below_the_cache(tmp_path, add) -> None:
    with hidet.option.context():
        hidet.option.cache_dir(str(tmp_path / "cache"))
        path = cache_file("models", "one.txt")
        assert path == os.path.join(cache_dir("models"), "one.txt") and path.startswith(str(tmp_path))
        with open(path, "w") as file:
            file.write("kept")
        add.build()
        compiled = sum(len(files) for _, _, files in os.walk(tmp_path / "cache"))
        clear_op_cache()
        assert os.path.exists(path)
        assert sum(len(files) for _, _, files in os.walk(tmp_path / "cache")) < compiled
        clear_cache_dir("models")
        assert not os.path.exists(path)
        with pytest.raises(OptionError):
            clear_cache_dir()


def test_a_compiled_task_is_saved_and_loaded(tmp_path, twice) -> None:
    path = str(tmp_path / "twice.hidet")
    twice.build("cpu").save(path)
    loaded = hidet.runtime.load_compiled_task(path)
    assert loaded(hidet.ones([3]).numpy()).tolist() == [2.0] * 3


def test_passes_are_logged_where_somebody_listens(caplog) -> None:
    from hidet.logging import DEBUG, WARNING, setConsoleLevel

    graph = hidet.trace_from(hidet.ops.matmul(hidet.symbol([2, 3]), hidet.ones([3, 4])))
    setConsoleLevel(DEBUG)
    with caplog.at_level(logging.DEBUG, logger="hidet"):
        graph.build()
    setConsoleLevel(WARNING)
    assert any("graph pass" in record.message and "took" in record.message for record in caplog.records)


def test_the_source_of_a_module_is_written(tmp_path, add) -> None:
    source = hidet.backend.codegen(add.ir_module(), str(tmp_path / "add.ll"), target="cpu")
    assert "fadd" in source and (tmp_path / "add.ll").read_text() == source


@pytest.mark.parametrize("name", ["apps", "ffi", "kernels", "cuda.cublas", "cuda.cudnn"])
def test_modules_that_are_gone_say_what_there_is_instead(name) -> None:
    with pytest.raises(UnsupportedOp, match=rf"hidet\.{name}\.anything is no part") as refused:
        _ = operator.attrgetter(name)(hidet).anything
    assert refused.value.hint


def test_there_is_no_device_of_hip() -> None:
    assert not hidet.hip.available() and hidet.hip.device_count() == 0
    with pytest.raises(UnsupportedOp, match=r"hidet\.hip\.synchronize") as refused:
        hidet.hip.synchronize()
    assert "targets.md" in refused.value.hint


def test_processes_reduce_tensors_in_their_memory(tmp_path) -> None:
    dist = pytest.importorskip("hidet.distributed")
    pytest.importorskip("torch")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", world_size=1, rank=0)
    try:
        x, others = hidet.asarray([1.0, 2.0]), [hidet.zeros([2])]
        dist.all_reduce(x, "max")
        dist.broadcast(x, 0)
        dist.all_gather(others, x)
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
        assert x.tolist() == others[0].tolist() == [1.0, 2.0]
        with pytest.raises(LaunchError, match="processes reduce by sum, prod, min, max, avg, got 'median'"):
            dist.all_reduce(x, "median")
        with pytest.raises(AttributeError, match=r"hidet\.distributed has no 'nothing'"):
            _ = dist.nothing
    finally:
        dist.destroy_process_group()


def test_storage_is_bytes_of_a_device() -> None:
    storage = hidet.runtime.Storage.new("cpu", 16)
    elements = storage.as_array(4, "float32")
    elements.copy_(1.5)
    assert (storage.num_bytes, storage.device, storage.addr) == (16, "cpu", elements.storage.ctypes.data)
    assert storage.as_array(2, "float32").tolist() == [1.5, 1.5]
    assert storage.copy().addr != storage.addr
