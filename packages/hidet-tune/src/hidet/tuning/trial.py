"""What a measuring process is asked, as plain data that JSON carries: programs as text, memory by type and size.

Nothing is pickled: a process is given thread IR, which it parses, verifies and compiles as any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hidet import dims, dtypes
from hidet.compute.definition import Definition
from hidet.context import CompileContext
from hidet.graph.types import TensorType
from hidet.ir.expr import Const, Expr, Reduce
from hidet.ir.printer import print_module
from hidet.ir.structural import structural_hash
from hidet.ir.visit import walk
from hidet.schedule.rule import Program
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A program of fixed sizes. code: what programs share that have the same module."""

    module: str
    arguments: tuple[int, ...]
    scratch: tuple[int, ...]
    code: str

    @property
    def digest(self) -> str:
        """What programs share that do the same."""
        return f"{self.code} {self.arguments} {self.scratch}"


def program_text(program: Program) -> ProgramText | None:
    """A program as text; None where its sizes are known at run time alone."""
    arguments = tuple(size for size in program.arguments if isinstance(size, int))
    scratch = tuple(size for size in program.scratch if isinstance(size, int))
    if (len(arguments), len(scratch)) != (len(program.arguments), len(program.scratch)):
        return None
    return ProgramText(print_module(program.module), arguments, scratch, structural_hash(program.module))


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a tensor. bound: of integers in it, which may be positions: each is in range(bound)."""

    dtype: str
    elements: int
    bound: int = 2

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return self.elements * dtypes.dtype(self.dtype).numpy().itemsize


@dataclass(frozen=True, slots=True)
class TaskMemory:
    """What programs of a task are called with.

    in_place: pairs (output, input) that share memory. terms: of the longest sum in it, by which results of programs
    that add in another order may differ.
    """

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    in_place: tuple[tuple[int, int], ...] = ()
    terms: int = 1


def memory_of(task: Task) -> TaskMemory | None:
    """Memory for a task; None where its sizes are known at run time alone."""
    if any(tensor.type.is_symbolic for tensor in (*task.inputs, *task.outputs)):
        return None
    bounds: dict[object, int] = {}
    for node in task.nodes:
        types = [None if value is None else value.type for value in node.inputs]
        for position in () if node.op.positions is None else node.op.positions(types, node.attrs):
            value = node.inputs[position.input]
            if value is not None and isinstance(position.extent, int):
                bounds[value] = min(max(position.extent, 1), bounds.get(value, position.extent))
    inputs = tuple(_buffer(tensor.type, bounds.get(tensor.value, 2)) for tensor in task.inputs)
    outputs = tuple(_buffer(tensor.type) for tensor in task.outputs)
    definitions = [node.definition for node in task.nodes if node.definition is not None]
    return TaskMemory(inputs, outputs, task.in_place, max(map(_terms, definitions), default=1))


def _buffer(type_: TensorType, bound: int = 2) -> Buffer:
    extents = [dims.evaluate(extent, {}) for extent in type_.shape]
    strides = [dims.evaluate(stride, {}) for stride in type_.element_strides]
    reach = 1 + sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=True))
    return Buffer(type_.dtype.name, 0 if 0 in extents else reach, bound)


def _terms(definition: Definition) -> int:
    """How many values the longest reduction of an operator combines."""
    found = 1
    for stage in definition.stages:
        values: tuple[Expr | None, ...] = getattr(stage, "values", (getattr(stage, "value", None),))
        for node in (node for value in values if value is not None for node in walk(value)):
            if isinstance(node, Reduce):
                found = max(found, math.prod(_extent(extent) for extent in node.extents))
    return found


def _extent(extent: Expr) -> int:
    """The extent of a reduction; 1 where it differs from element to element."""
    return int(extent.value) if isinstance(extent, Const) else 1  # type: ignore[arg-type]  # extents are integers


@dataclass(frozen=True, slots=True)
class Trial:
    """Compare programs of a task: what they compute, then how long they take, in turns.

    candidate: None to measure the default alone. rounds: turns of each. seed: of inputs that results are compared on,
    besides those of seed 0, which are timed.
    """

    memory: TaskMemory
    default: ProgramText
    candidate: ProgramText | None
    rounds: int
    seed: int = 0

    @property
    def programs(self) -> tuple[ProgramText, ...]:
        """What is compiled for it."""
        return (self.default,) if self.candidate is None else (self.default, self.candidate)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial.

    default_seconds, seconds: of a call, one a round. failure: why the candidate cannot be used; "" where it can. took:
    seconds that all of it took where it ran; 0.0 where nobody says.
    """

    default_seconds: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    failure: str = ""
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How a measuring process compiles and runs programs.

    target: "cpu", or with the number of a device, "cuda:1". cache: whether code is looked for in the kernel cache, and
    kept there.
    """

    target: str
    threads: int
    options: Mapping[str, Any] = field(default_factory=dict)
    cache: bool = False


def settings_of(ctx: CompileContext, threads: int) -> Settings:
    """Those of a compilation, of options those that code generation may read."""
    given = {name: value for name, value in ctx.options.plugin_options.items() if not name.startswith("tune.")}
    target, number = ctx.target, ctx.target.device.partition(":")[2]
    return Settings(f"{target.name}:{number}" if number else target.name, threads, given)


def trial_from(given: Mapping[str, Any]) -> Trial:
    """The trial that `dataclasses.asdict` and JSON made this of."""
    memory, candidate = given["memory"], given["candidate"]
    return Trial(
        TaskMemory(
            tuple(Buffer(**each) for each in memory["inputs"]),
            tuple(Buffer(**each) for each in memory["outputs"]),
            tuple((output, source) for output, source in memory["in_place"]),
            memory["terms"],
        ),
        program_from(given["default"]),
        None if candidate is None else program_from(candidate),
        given["rounds"],
        given["seed"],
    )


def outcome_from(given: Mapping[str, Any]) -> Outcome:
    """The outcome that `dataclasses.asdict` and JSON made this of."""
    return Outcome(tuple(given["default_seconds"]), tuple(given["seconds"]), given["failure"], given["took"])


def program_from(given: Mapping[str, Any]) -> ProgramText:
    """The program that `dataclasses.asdict` and JSON made this of."""
    return ProgramText(given["module"], tuple(given["arguments"]), tuple(given["scratch"]), given["code"])
