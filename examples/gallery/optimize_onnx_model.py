"""A model in an ONNX file
=======================

A model in a file of ONNX: imported, run operator by operator, traced, optimised and saved.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hidet


def write_model(path: str) -> None:
    """Two layers, for batches of any size."""
    random = np.random.default_rng(0)
    weights = {"w1": random.normal(size=(8, 16)), "b1": random.normal(size=16), "w2": random.normal(size=(16, 4))}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["data", "w1"], ["product"]),
            helper.make_node("Add", ["product", "b1"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["hidden"]),
            helper.make_node("MatMul", ["hidden", "w2"], ["output"]),
        ],
        "layers",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def main() -> None:
    device = "cuda" if hidet.cuda.available() else "cpu"
    write_model("layers.onnx")
    model = hidet.graph.frontend.from_onnx("layers.onnx")
    print("inputs:", model.input_names, "outputs:", model.output_names)

    data = hidet.randn([3, 8], device=device)
    imperative = model(data)
    print(imperative.signature())

    x = hidet.symbol_like(data)
    graph: hidet.FlowGraph = hidet.trace_from(model(x))
    print(graph)
    with hidet.graph.PassContext() as ctx:
        hidet.option.search_space(0)
        ctx.save_graph_instrument("./outs/graphs")
        optimized = hidet.graph.optimize(graph)
        found = optimized(data)
    hidet.utils.assert_close(found, imperative, rtol=1e-4, atol=1e-4)
    if device == "cuda":
        (output,) = optimized.cuda_graph().run([data])
        hidet.utils.assert_close(output, imperative, rtol=1e-4, atol=1e-4)

    hidet.save_graph(optimized, "layers.hidet")
    hidet.utils.assert_close(hidet.load_graph("layers.hidet")(data), imperative, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    main()
