"""Tasks of users compiled for a GPU that need not be there: by rules of the target, and with kernels of their own."""

from __future__ import annotations

import hidet
from hidet import dtypes
from hidet.compat.task_operator import modules_of, task_operator
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.graph import GraphBuilder, TensorType
from hidet.ir.compute import compute, reduce, tensor_input
from hidet.lang import attrs, f32
from hidet.lang.cuda import blockIdx, threadIdx
from hidet.plugins.host import load_registry


class Own(hidet.Task):
    def implement_cuda(self, working_dir):
        rows, columns = self.inputs[0].const_shape
        with hidet.script_module() as module:

            @hidet.script
            def twice(x: f32[rows, columns], y: f32[rows, columns]):
                attrs.cuda.grid_dim = rows
                attrs.cuda.block_dim = columns
                y[blockIdx.x, threadIdx.x] = x[blockIdx.x, threadIdx.x] * 2.0

        return module.ir_module()


def twice(kind):
    a = tensor_input("a", "float32", [8, 64])
    return kind("twice", [a], [compute("c", [8, 64], lambda i, j: a[i, j] * 2.0)])


def compiled(task):
    """A graph of a task, and of another operator behind it."""
    spec, attributes = task_operator(task, "cuda:0")
    builder = GraphBuilder(load_registry().operators)
    inputs = [builder.input(TensorType(dtypes.f32, node.shape, device="cuda:0")) for node in task.inputs]
    (result,) = builder.emit_all(spec, inputs, attributes)
    return compile_graph(builder.build([builder.emit("relu", result)]), make_context("cuda:sm_90a"))


def test_a_task_fuses_into_one_kernel_by_rules_of_the_target() -> None:
    a = tensor_input("a", "float32", [64, 128])
    sums = hidet.Task("sums", [a], [compute("c", [64], lambda i: reduce([128], lambda j: a[i, j], "sum"))])
    for task in (sums, twice(hidet.Task)):
        report = compiled(task).report()
        assert report.kernels == 1 and "0 on the fallback nest" in str(report)


def test_a_kernel_of_the_task_is_called_as_it_is() -> None:
    assert len(modules_of(twice(Own), "cuda:0")) == 1 and modules_of(twice(Own), "cpu") == ()
    assert compiled(twice(Own)).report().kernels == 2
