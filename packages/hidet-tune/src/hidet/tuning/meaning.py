"""What a choice is kept under: what a task computes, on which sizes, where, and by which rule; no commit, no name."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hidet.context import CompileContext
from hidet.errors import LaunchError
from hidet.graph.types import TensorType
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, order=True)
class Meaning:
    """The key of a choice.

    task: digest of operators, attributes, wiring, element types and ranks. sizes: shapes and strides of what is read
    and written, "f32[8, 64], f32[64]". arch: target and machine; of a CPU the threads, too. rule, version: the schedule
    rule, and the version of the wheel that it is of ("" for a plug-in of none).
    """

    task: str
    sizes: str
    arch: str
    rule: str
    version: str


def meaning_of(task: Task, rule: str, ctx: CompileContext) -> Meaning | None:
    """The key of a rule's choice for a task; None where sizes are known at run time alone, where an attribute of an
    operator has no text that other processes share, and for a device that is not there."""
    types: list[TensorType] = []
    text = repr(_without_sizes(task.key.parts, types))
    if not is_stable(text) or any(type_.is_symbolic for type_ in types):
        return None
    arch = arch_of(ctx)
    if arch is None:
        return None
    return Meaning(
        _digest(text),
        ", ".join(map(str, types)),
        arch,
        rule,
        ctx.registry.owners["schedules", rule].version or "",
    )


def is_stable(text: str) -> bool:
    """Whether a `repr` says the same in every process: it names no address."""
    return " at 0x" not in text


def arch_of(ctx: CompileContext) -> str | None:
    """Between what measurements do not carry over: machines and threads of a CPU, models of a device, on whatever host.
    None for a device that is not there, and for a target of no plug-in."""
    spec = ctx.registry.targets.get(ctx.target.name)
    if spec is None:
        return None
    if spec.kind != "gpu":
        return f"{ctx.target.name} {_digest(ctx.target.arch)[:12]} threads={threads_of(ctx)}"
    target: Any = ctx.target
    return None if ctx.machine is not None else _device_arch(target)


@functools.lru_cache(maxsize=8)
def _device_arch(target: Any) -> str | None:
    try:
        memory = target.memory
        return f"{target.name} {target.arch}" if memory is None else f"{target.name} {memory.description}"
    except LaunchError:
        return None


def threads_of(ctx: CompileContext) -> int:
    """CPU threads that programs use."""
    if ctx.options.threads is not None:
        return ctx.options.threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _without_sizes(part: object, types: list[TensorType]) -> object:
    """A part of a task's key with element type and rank for each tensor; `types` receives the tensors."""
    if isinstance(part, TensorType):
        types.append(part)
        return (part.dtype.short, part.rank, part.strides is not None, part.device, part.alignment)
    return tuple(_without_sizes(each, types) for each in part) if isinstance(part, tuple) else part


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
