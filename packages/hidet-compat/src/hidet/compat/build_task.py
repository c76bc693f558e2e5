"""`hidet.drivers.build_task`: a task compiled alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hidet.api.flow import FlowGraph, Operation
from hidet.api.flow.operation import call
from hidet.api.tensors.create import asarray, empty, symbol
from hidet.api.tensors.tensor import Tensor, device_name
from hidet.compat.task_operator import task_operator
from hidet.compiler.modules import build_ir_module
from hidet.errors import LaunchError
from hidet.ir.func import Module
from hidet.ir.task import Task
from hidet.runtime.artifact import load
from hidet.runtime.module import CompiledModule
from hidet.utils.benchmark import benchmark_func


class CompiledTask:
    """A task as machine code. Called with the inputs, it gives the output, or a list of several."""

    def __init__(self, task: Task, device: str) -> None:
        self.task = task
        self.device = device
        spec, attrs = task_operator(task, device)
        inputs = [symbol(node.shape, node.dtype, device) for node in task.inputs]
        operation = Operation(spec, inputs, attrs)
        self.compiled = FlowGraph(inputs, operation.outputs, [operation]).build()

    @property
    def name(self) -> str:
        """That of the task."""
        return self.task.name

    def run_async(self, inputs: Sequence[Any]) -> list[Tensor]:
        """The outputs. On a device they are there when work that is started later on the same stream begins.
        LaunchError for another number of inputs."""
        if len(inputs) != len(self.task.inputs):
            raise LaunchError(f"task {self.name} takes {len(self.task.inputs)} inputs, got {len(inputs)}")
        return list(call(self.compiled, [asarray(tensor) for tensor in inputs]))

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a list of several."""
        outputs = self.run_async(inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def create_outputs(self) -> list[Tensor]:
        """Tensors of the kinds of the outputs, with no elements in particular."""
        return [empty(node.const_shape, node.dtype, self.device) for node in self.task.outputs]

    def save(self, path: str) -> None:
        """Write the program into a file, for `load_compiled_task`."""
        self.compiled.save(path)

    def profile(self, *inputs: Any, warmup: int = 1, number: int = 2, repeat: int = 10) -> list[float]:
        """Milliseconds of a call: `repeat` means of `number` calls each."""
        times = benchmark_func(self.run_async, inputs, warmup=warmup, number=number, repeat=repeat, median=False)
        assert isinstance(times, list)
        return times


def build_task(task: Task, target: str = "cuda", load: bool = True) -> CompiledTask:
    """A task compiled for a target: "cpu", "cuda", "cuda:1". load: it always is."""
    return CompiledTask(task, device_name(target))


def load_compiled_task(path: str) -> Any:
    """What `CompiledTask.save` wrote: called with tensors of any library, it gives theirs."""
    return load(path)


def build_task_batch(task_targets: Sequence[tuple[Task, str]]) -> list[CompiledTask]:
    """Tasks compiled, each for its target."""
    return [build_task(task, target) for task, target in task_targets]


def build_ir_module_batch(
    ir_modules: Sequence[Module], target: str = "auto", force: bool = False
) -> list[CompiledModule]:
    """Modules compiled. force: what is in the cache is right in any case."""
    return [build_ir_module(module, target) for module in ir_modules]
