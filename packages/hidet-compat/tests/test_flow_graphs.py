"""Flow graphs as hidet 0.6 had them: looked at, drawn, saved, run operator by operator, and seen by instruments."""

from __future__ import annotations

import io
import json
import zipfile

import ml_dtypes
import numpy as np
import pytest

import hidet
from hidet.compat.netron import netron_model
from hidet.errors import HidetWarning, ImportFailed, LaunchError, ShapeError, UnsupportedOp


@pytest.fixture(name="x")
def _x() -> hidet.Tensor:
    return hidet.asarray(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))


@pytest.fixture(name="graph")
def _graph() -> hidet.FlowGraph:
    s, w = hidet.symbol([2, 3]), hidet.asarray(np.arange(12, dtype=np.float32).reshape(3, 4))
    return hidet.trace_from(hidet.ops.softmax(hidet.ops.relu(hidet.ops.matmul(s, w)) + 1.0, 1))


def test_usage_counts_are_of_operators_and_of_the_caller() -> None:
    x = hidet.symbol([2])
    y = x * x
    graph = hidet.trace_from([y, y + x])
    assert [graph.usage_count[tensor] for tensor in (x, y)] == [3, 2]
    assert graph.share_map == {}


def test_outputs_that_are_inputs_share_their_memory() -> None:
    x = hidet.symbol([2])
    assert hidet.trace_from([x * 2.0, x], inputs=[x]).share_map == {1: 0}


def test_a_graph_is_timed_with_inputs_that_fit(graph) -> None:
    assert [tensor.shape for tensor in graph.dummy_inputs()] == [(2, 3)]
    assert 0 < graph.latency(warmup=1, repeat=2) < 1e3
    with pytest.raises(ShapeError, match="is not known"):
        hidet.trace_from(hidet.symbol(["n"]) * 2.0).dummy_inputs()


def test_a_drawing_has_a_node_an_operator(graph, tmp_path, monkeypatch) -> None:
    graph.draw(tmp_path / "graph.dot")
    text = (tmp_path / "graph.dot").read_text()
    assert [f'label="{name}"' in text for name in ("matmul", "relu", "add", "softmax")] == [True] * 4
    assert 'node0 -> node1 [label="float32[2, 4]"]' in text
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LaunchError, match="Graphviz, which is not installed"):
        graph.draw(tmp_path / "graph.png")


def test_a_graph_of_the_host_is_no_cuda_graph(graph) -> None:
    with pytest.raises(LaunchError, match="this graph is on cpu"):
        graph.cuda_graph()
    with pytest.raises(LaunchError, match="was compiled for the host"):
        graph.build().cuda_graph(*graph.dummy_inputs())
    with pytest.raises(UnsupportedOp, match="hip_graph"):
        graph.hip_graph()


def test_moving_to_virtual_devices_warns(graph, x) -> None:
    with pytest.warns(HidetWarning, match="vcuda_"):
        assert graph.vcuda_() is graph
    with pytest.warns(HidetWarning, match="vcuda_"):
        assert x.vcuda_() is x


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_a_graph_is_saved_and_loaded_without_pickle(dtype, tmp_path) -> None:
    s, weight = hidet.symbol(["n", 3], dtype=dtype), hidet.asarray(np.arange(60).reshape(20, 3) % 5 > 1, dtype=dtype)
    graph = hidet.trace_from(hidet.ops.concat([s, weight], 0))
    hidet.save_graph(graph, tmp_path / "graph.hidet")
    loaded = hidet.load_graph(tmp_path / "graph.hidet")
    assert str(loaded) == str(graph)
    given = hidet.ones([2, 3], dtype=dtype)
    np.testing.assert_array_equal(loaded(given).numpy(), graph(given).numpy())
    with zipfile.ZipFile(tmp_path / "graph.hidet") as archive:
        np.load(io.BytesIO(archive.read("constants.npz")), allow_pickle=False)["0"]
    graph.save(tmp_path / "again.hidet")
    assert str(hidet.FlowGraph.load(tmp_path / "again.hidet")) == str(graph)


def test_a_file_that_is_no_graph_is_refused(tmp_path) -> None:
    (tmp_path / "graph.hidet").write_bytes(b"nothing")
    with pytest.raises(ImportFailed, match=r"graph\.hidet is no graph that hidet\.save_graph wrote"):
        hidet.load_graph(tmp_path / "graph.hidet")


def test_netron_opens_what_is_dumped(graph, tmp_path) -> None:
    """Its reader of ONNX as JSON asks for `irVersion`, and reads nodes, types, and attributes by their kinds."""
    with (tmp_path / "graph.json").open("w") as file:
        hidet.utils.netron.dump(graph, file)
    model = json.loads((tmp_path / "graph.json").read_text())
    assert model["irVersion"]
    assert [node["opType"] for node in model["graph"]["node"]] == ["Matmul", "Relu", "Add", "Softmax"]
    (given,) = model["graph"]["input"]
    assert given["type"]["tensorType"] == {"elemType": 1, "shape": {"dim": [{"dimValue": "2"}, {"dimValue": "3"}]}}
    assert {entry["name"] for entry in model["graph"]["initializer"]} < {
        name for node in model["graph"]["node"] for name in node["input"]
    }


def test_what_is_dumped_is_a_model_of_onnx(graph) -> None:
    onnx = pytest.importorskip("onnx")
    from google.protobuf import json_format

    model = json_format.ParseDict(netron_model(graph), onnx.ModelProto())
    assert [node.op_type for node in model.graph.node] == ["Matmul", "Relu", "Add", "Softmax"]
    assert [(a.name, a.i) for a in model.graph.node[0].attribute if a.type == onnx.AttributeProto.INT] == [
        ("trans_a", 0),
        ("trans_b", 0),
        ("fast_accum", 0),
    ]


class Heard(hidet.graph.GraphPassInstrument):
    def __init__(self) -> None:
        self.log: list[str] = []

    def before_all_passes(self, graph) -> None:
        self.log.append(f"begin {len(graph.nodes)}")

    def before_pass(self, pass_name, graph) -> None:
        self.log.append(f"before {pass_name}")

    def after_pass(self, pass_name, graph) -> None:
        self.log.append(f"after {pass_name}")

    def after_all_passes(self, graph) -> None:
        self.log.append("end")


def test_instruments_of_a_context_hear_of_passes_and_of_none_behind_its_block(graph, tmp_path, capsys) -> None:
    heard = Heard()
    with hidet.graph.PassContext() as context:
        context.profile_pass_instrument(tmp_path / "logs" / "times.txt", print_stdout=True)
        context.save_graph_instrument(tmp_path / "stages").set_verbose()
        context.instruments.append(heard)
        hidet.graph.optimize(graph)
    count = len(heard.log)
    assert (heard.log[0], heard.log[1], heard.log[2], heard.log[-1]) == (
        *("begin 4", "before unfold-control", "after unfold-control"),
        "end",
    )
    lines = (tmp_path / "logs" / "times.txt").read_text().splitlines()
    assert lines[0].split()[0] == "unfold-control" and lines[0].endswith(" ms")
    shown = capsys.readouterr().out
    assert lines[0] in shown and "split-prepare: 5 -> 4 operators" in shown
    stages = sorted(path.name for path in (tmp_path / "stages").iterdir())
    assert stages[:2] == ["0_import.json", "0_import.txt"] and len(stages) > 4
    assert json.loads((tmp_path / "stages" / "0_import.json").read_text())["graph"]["node"]
    hidet.graph.optimize(graph)
    assert len(heard.log) == count


def test_instruments_see_each_operator_of_a_graph_that_runs(graph, x, tmp_path, capsys) -> None:
    right = graph(x).numpy()

    class Seen(hidet.graph.GraphForwardInstrument):
        names: list[str] = []  # noqa: RUF012  # of one test

        def before_operator(self, op, inputs) -> None:
            self.names.append(f"{op.name} {len(inputs)}")

        def after_graph(self, graph, inputs, outputs) -> None:
            self.names.append(f"gave {outputs[0].shape}")

    with hidet.graph.forward_context() as context:
        context.debug(str(tmp_path / "debug"), print_summary=True, dump_outputs=True, dump_op=True)
        context.benchmark(str(tmp_path / "times"), print_summary=True, warmup=0, number=1, repeat=1)
        context.append_instrument(Seen())
        np.testing.assert_allclose(graph(x).numpy(), right, rtol=1e-5)
    assert Seen.names == ["matmul 2", "relu 1", "add 2", "softmax 1", "gave (2, 4)"]
    table = (tmp_path / "debug" / "summary.txt").read_text()
    assert [line.split()[0] for line in table.splitlines()] == ["operator", "Matmul", "Relu", "Add", "Softmax"]
    assert table in capsys.readouterr().out
    np.testing.assert_allclose(np.load(tmp_path / "debug" / "3_softmax_0.npy"), right, rtol=1e-5)
    times = (tmp_path / "times" / "summary.txt").read_text().splitlines()
    assert sorted(line.split()[0] for line in times[1:]) == ["Add", "Matmul", "Relu", "Softmax"]
    graph(x)
    assert len(Seen.names) == 5, "behind the block nobody looks"


def test_a_debugged_graph_tells_of_numbers_that_are_none(tmp_path, capsys) -> None:
    s = hidet.symbol([2])
    with hidet.graph.forward_context() as context:
        context.debug(str(tmp_path), print_summary=True)
        hidet.trace_from(hidet.ops.log(s))(hidet.asarray([-1.0, 0.0]))
    assert capsys.readouterr().out.splitlines()[1].split()[-2:] == ["True", "True"]


def test_compiled_graphs_say_what_they_take_and_hold(graph, x) -> None:
    compiled = graph.build()
    assert compiled.meta.inputs[0].shape == [2, 3]
    assert compiled.meta.num_kernels == compiled.report().kernels
    assert sum(tensor.size for tensor in compiled.weights) >= 1
    np.testing.assert_array_equal(compiled.run_async([x])[0].numpy(), graph(x).numpy())
    np.testing.assert_array_equal(compiled.run_async([x.numpy()])[0], graph(x).numpy())
    for refused in (lambda: compiled.set_weights([]), lambda: compiled.dispatch_table, compiled.clear_dispatch_table):
        with pytest.raises(UnsupportedOp):
            refused()
    with pytest.raises(AttributeError, match="'CompiledGraph' object has no attribute 'nothing'"):
        compiled.nothing  # noqa: B018  # that it is not there


def test_tensors_are_overwritten_in_their_memory() -> None:
    memory = np.zeros((2, 3), np.float32)
    x = hidet.asarray(memory)
    assert x.copy_(hidet.asarray([1, 2, 3])) is x
    np.testing.assert_array_equal(memory, [[1, 2, 3]] * 2)
    x.copy_(np.full((2, 3), 0.5, ml_dtypes.bfloat16))
    np.testing.assert_array_equal(memory, 0.5)
    with pytest.raises(LaunchError, match="a symbolic tensor has none"):
        hidet.symbol([2]).copy_(1.0)


def test_tensors_tell_where_and_how_they_lie(x) -> None:
    assert (x.device.kind, x.device.id, x.device.is_cpu(), x.device.is_cuda()) == ("cpu", None, True, False)
    assert (hidet.device("cuda", 1), hidet.device("cuda").id) == ("cuda:1", 0)
    assert x.layout(1, 2) == 5 and list(x.layout.shape) == [2, 3]
    assert x.signature() == "tensor(float32, [2, 3], cpu)"
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nothing'"):
        x.nothing  # noqa: B018  # that it is not there


def test_copies_that_may_be_late_are_in_time(x) -> None:
    for made in (x.copy_async(), x.cpu_async(), x.to_device("cpu", stream=None)):
        np.testing.assert_array_equal(made.numpy(), x.numpy())
    assert x.copy_async() is not x
    with pytest.raises(UnsupportedOp, match="HIP"):
        x.hip()
