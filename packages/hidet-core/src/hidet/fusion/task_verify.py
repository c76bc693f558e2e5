"""Checks that tasks obey the rules that schedules rely on.

order       what a step reads is an input, a constant, prepared, or written by a step before it, itself or the value
            in whose storage it lies; what the graph returns is written
tensors     their operands have the types that the values have in memory
formulas    a prologue computes an operand of the anchor from the task's inputs, an epilogue an output from those
            and from the anchor's results, each at every index once
in place    an output that overwrites an input of the task
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hidet.compute.definition import Compute, Operand
from hidet.errors import VerifyError
from hidet.fusion.group import alias_root
from hidet.graph.graph import Value
from hidet.ir.visit import accesses
from hidet.schedule.task import Task, TaskGraph, TaskTensor


def verify_tasks(task_graph: TaskGraph) -> None:
    """Raise VerifyError, naming the task, for the first rule that the tasks of a graph break."""
    graph = task_graph.graph
    prepared = () if graph.prepare is None else graph.prepare.results
    # Storage of which something is written: parts of a value may be written before the rest of it.
    written = {*graph.inputs, *graph.constants, *prepared}

    def require(values: Iterable[Value], what: str) -> None:
        for value in values:
            if alias_root(value, task_graph.aliases) not in written:
                raise VerifyError(f"{what} {value.name}, which no step before it writes")

    for step in task_graph.steps:
        if isinstance(step, Task):
            try:
                require((tensor.value for tensor in step.inputs), "it reads")
                _check_task(step, task_graph)
            except VerifyError as error:
                raise VerifyError(f"task {step.name}: {error.message}", loc=step.loc) from error
            values = [tensor.value for tensor in step.outputs]
        else:
            require(step.node.values, f"step {step.node.op.name} reads")
            values = list(step.node.outputs)
        written.update(alias_root(value, task_graph.aliases) for value in values)
    require(graph.outputs, "the graph returns")


def _check_task(task: Task, task_graph: TaskGraph) -> None:
    if not task.nodes or (task.anchor is not None and task.anchor not in task.nodes):
        raise VerifyError("its anchor is none of its nodes")
    for tensor in (*task.inputs, *task.outputs):
        _check_tensor(tensor, task_graph)
    given = {tensor.operand for tensor in task.inputs}
    made: frozenset[Operand] = frozenset()
    if task.anchor is not None:
        _check_anchor(task, given)
        made = frozenset(task.definition.outputs)
    if len(task.epilogues) != len(task.outputs):
        raise VerifyError(f"{len(task.epilogues)} epilogues for {len(task.outputs)} outputs")
    for epilogue, output in zip(task.epilogues, task.outputs, strict=True):
        if epilogue.result is not output.operand:
            raise VerifyError(f"epilogue of {epilogue.result.name} stands where output {output.operand.name} does")
        _check_formula(epilogue, given | made, "epilogue")
    for target, source in task.in_place:
        if not (0 <= target < len(task.outputs) and 0 <= source < len(task.inputs)):
            raise VerifyError(f"output {target} overwrites input {source}, of which one is not there")


def _check_tensor(tensor: TaskTensor, task_graph: TaskGraph) -> None:
    type_, operand = tensor.type, tensor.operand
    if type_ != task_graph.types.get(tensor.value):
        raise VerifyError(f"{tensor.value.name} has type {type_}, in memory {task_graph.types.get(tensor.value)}")
    if (operand.dtype, operand.shape) != (type_.dtype, type_.shape):
        raise VerifyError(f"operand {operand.name} of {tensor.value.name} is {operand.dtype}{list(operand.shape)}")


def _check_anchor(task: Task, given: Collection[Operand]) -> None:
    """Each present input of the anchor is one operand of its definition."""
    assert task.anchor is not None
    wanted = iter(task.definition.inputs)
    for value, tensor, prologue in zip(task.anchor.inputs, task.anchor_inputs, task.prologues, strict=True):
        if value is None:
            continue
        operand = next(wanted, None)
        if operand is None or (tensor is None) == (prologue is None):
            raise VerifyError(f"anchor input {value.name} is neither one tensor nor one prologue")
        if tensor is not None and tensor.operand not in given:
            raise VerifyError(f"its anchor reads {tensor.operand.name}, which is no input")
        if prologue is not None:
            if prologue.result is not operand:
                raise VerifyError(f"prologue of {prologue.result.name} stands where operand {operand.name} does")
            _check_formula(prologue, given, "prologue")
    left = next(wanted, None)
    if left is not None:
        raise VerifyError(f"nothing is given for operand {left.name} of its anchor")


def _check_formula(formula: Compute, given: Collection[Operand], what: str) -> None:
    result = formula.result
    if len(formula.axes) != result.rank or formula.value.dtype != result.dtype:
        raise VerifyError(
            f"{what} of {result.name} has {len(formula.axes)} axes and elements of {formula.value.dtype}, "
            f"expected {result.rank} and {result.dtype}"
        )
    for access in accesses(formula.value):
        if access.operand not in given:
            raise VerifyError(f"{what} of {result.name} reads {access.operand.name}, which it does not have")
        if len(access.indices) != access.operand.rank:
            raise VerifyError(
                f"{what} of {result.name} reads {access.operand.name} of {access.operand.rank} axes at "
                f"{len(access.indices)} indices"
            )
