"""Tasks as text, for dumps: what fusion has made of a graph.

    task 0 matmul_fused2, key 6c1d0f5a2b3e4d7f
      %4: f32[8, 64] = matmul(%x, %w)  # model.py:41 (fc1)
      %5: f32[8, 64] = relu(%4)
      read x0 = %x: f32[8, 32] aligned
      read x1 = %w: f32[32, 64] weight
      anchor matmul(a=x0, b=x1)
        y[i0, i1] = reduce("sum", [r0], [32], [a[i0, r0] * b[r0, i1]], 0)
      epilogue y0[i0, i1] = max(y[i0, i1], 0.0)
      write %5 = y0: f32[8, 64]

The names of values are those of the graph's own text. Tasks with equal keys get one program.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from hidet.compute.printer import definition_lines, stage_lines
from hidet.graph.printer import GraphText, type_text
from hidet.ir.expr_text import Names
from hidet.schedule.task import Task, TaskGraph, TaskKey, TaskTensor


def print_tasks(task_graph: TaskGraph) -> str:
    """The steps of a graph in order, tasks and nodes that others run, then values that lie in another's memory."""
    graph = GraphText.named(task_graph.graph)
    blocks: list[str] = []
    number = 0
    for step in task_graph.steps:
        if isinstance(step, Task):
            blocks.append("\n".join(_task_lines(step, number, graph)))
            number += 1
        else:
            lines = graph.node_lines(step.node)
            blocks.append("\n".join([f"step of kind {step.node.op.kind}", *lines]))
    aliases = [
        f"{graph.typed(value)} in {graph.name(alias.base)}" + (f" at {alias.offset}" if alias.offset != 0 else "")
        for value, alias in task_graph.aliases.items()
    ]
    if aliases:
        blocks.append("\n".join(["aliases", *(f"  {line}" for line in aliases)]))
    return "\n\n".join(blocks) + "\n"


def task_title(task: Task, number: int) -> str:
    """How dumps name a task: its number among the tasks of its graph, its name and its key."""
    return f"task {number} {task.name}, key {key_digest(task.key)}"


def key_digest(key: TaskKey) -> str:
    """16 hexadecimal digits that equal keys share."""
    return blake2b(repr(key.parts).encode(), digest_size=8).hexdigest()


def _task_lines(task: Task, number: int, graph: GraphText) -> Iterator[str]:
    yield task_title(task, number)
    for node in task.nodes:
        yield from graph.node_lines(node)
    names = Names()
    for tensor in task.inputs:
        yield f"  read {names(tensor.operand)} = {_tensor(tensor, graph)}"
    if task.anchor is not None:
        yield from _anchor_lines(task, names)
    for epilogue in task.epilogues:
        yield from (f"  epilogue {line}" for line in stage_lines(epilogue, names))
    for tensor in task.outputs:
        yield f"  write {graph.name(tensor.value)} = {names(tensor.operand)}: {_typed(tensor)}"
    for output, source in task.in_place:
        yield f"  in place: {names(task.outputs[output].operand)} overwrites {names(task.inputs[source].operand)}"


def _anchor_lines(task: Task, names: Names) -> Iterator[str]:
    assert task.anchor is not None
    operands = iter(task.definition.inputs)
    given: list[str] = []
    for value, tensor, prologue in zip(task.anchor.inputs, task.anchor_inputs, task.prologues, strict=True):
        if value is None:
            continue
        operand = next(operands)
        given.append(f"{names(operand)}={'prologue' if tensor is None else names(tensor.operand)}")
        if prologue is not None:
            yield from (f"  prologue {line}" for line in stage_lines(prologue, names))
    yield f"  anchor {task.anchor.op.name}({', '.join(given)})"
    yield from (f"    {line}" for line in definition_lines(task.definition, names))


def _tensor(tensor: TaskTensor, graph: GraphText) -> str:
    return f"{graph.name(tensor.value)}: {_typed(tensor)}"


def _typed(tensor: TaskTensor) -> str:
    known = ((" aligned", tensor.is_aligned), (" weight", tensor.is_weight))
    return type_text(tensor.type) + "".join(word for word, holds in known if holds)
