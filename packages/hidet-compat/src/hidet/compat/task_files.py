"""Tasks in files, `hidet.save_task` and `hidet.load_task`: their definitions, so that opening one runs nothing.

A file is a pickle of expressions, stages and numbers. What opens it makes objects of the classes below alone, and finds
types, combiners and sizes by their texts.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from hidet import dims, dtypes
from hidet.compute.definition import COMBINERS, Combiner, Compute, Definition
from hidet.dims import DimExpr
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.ir.compute import TensorNode
from hidet.ir.expr import Access, Binary, Bitcast, Cast, Const, Reduce, Select, Size, Unary, Var
from hidet.ir.operand import Operand
from hidet.ir.task import Task

_FORMAT = b"hidet task 1\n"
_CLASSES: Mapping[tuple[str, str], type] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        *(Access, Binary, Bitcast, Cast, Compute, Const, Definition, Operand, Reduce, Select, Size, Unary, Var),
    )
}


def save_task(task: Task, fname: str | os.PathLike[str]) -> None:
    """Write the definition and the attributes of a task into a file. UnsupportedOp for one with programs of its own."""
    if type(task).implement_cpu is not Task.implement_cpu or type(task).implement_cuda is not Task.implement_cuda:
        raise UnsupportedOp(
            f"task {task.name} has programs of its own, which are Python", hint="task.build(target).save(path)"
        )
    held = io.BytesIO(_FORMAT)
    held.seek(0, io.SEEK_END)
    _Writer(held).dump((task.name, task.attributes, task.definition))
    Path(fname).write_bytes(held.getvalue())


def load_task(fname: str | os.PathLike[str]) -> Task:
    """The task that `save_task` wrote. ImportFailed for another file, and one that names anything but definitions."""
    data = Path(fname).read_bytes()
    if not data.startswith(_FORMAT):
        raise ImportFailed(f"{os.fspath(fname)} is no task that hidet.save_task wrote")
    try:
        name, attributes, definition = _Reader(io.BytesIO(data.removeprefix(_FORMAT))).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError) as error:
        raise ImportFailed(f"{os.fspath(fname)} is damaged: {error}") from error
    made = {operand: TensorNode(operand) for operand in definition.inputs}
    for stage in definition.stages:
        made[stage.result] = TensorNode(stage.result, stage)
    inputs, outputs = ([made[operand] for operand in part] for part in (definition.inputs, definition.outputs))
    return Task(name, inputs, outputs, attributes=attributes)


class _Writer(pickle.Pickler):
    def persistent_id(self, obj: Any) -> tuple[object, ...] | None:
        if isinstance(obj, DType):
            return "type", obj.name
        if isinstance(obj, Combiner):
            return "combiner", obj.name
        if isinstance(obj, DimExpr):
            return "size", str(obj), [(s.name, s.lower, s.upper, s.divisor) for s in dims.symbols(obj)]
        return None


class _Reader(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        kind, text, *symbols = pid
        if kind == "combiner":
            return COMBINERS[text]
        if kind == "type":
            return dtypes.dtype(text)
        known = {name: dims.symbol(name, *facts) for name, *facts in symbols[0]}
        return dims.parse_dim(text, known, is_printed=True)

    def find_class(self, module_name: str, global_name: str) -> Any:
        return _CLASSES.get((module_name, global_name)) or _refuse(f"{module_name}.{global_name}")


def _refuse(name: str) -> NoReturn:
    raise pickle.UnpicklingError(f"{name} is no part of a definition")
