"""The program of a node that calls a script: the script's own module, and an entry that hands it its arguments.

Scripts see row-major tensors, so that what lies otherwise is copied before the call, or after it.
"""

from __future__ import annotations

from typing import Any

from hidet import dims, dtypes
from hidet.context import CompileContext
from hidet.dims import DimExpr
from hidet.errors import ScheduleError
from hidet.graph.types import contiguous_strides, same_shape
from hidet.ir import build
from hidet.ir.expr import Bitcast, Const, Expr, Var
from hidet.ir.func import Function
from hidet.ir.polls import with_polls
from hidet.ir.stmt import Invoke, Launch, Store
from hidet.ir.types import BufferType, PointerType, Type
from hidet.schedule.entry import EntryBuilder
from hidet.schedule.lowering import KernelScope
from hidet.schedule.routines.site import unflatten
from hidet.schedule.rule import FixedRule, Match, Program
from hidet.schedule.select import rename_module
from hidet.schedule.task import Task, TaskTensor
from hidet.script_operator.operator import SCRIPT, ScriptCall


class ScriptRule(FixedRule[None]):
    """Schedules the operator `script`, for the target that its module was written for."""

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """Every call of a script that nothing is fused with."""
        return Match(task) if task.op_name == SCRIPT and task.is_plain else None

    def build(self, match: Match[None], params: None, ctx: CompileContext) -> Program:
        """The script, and copies around it."""
        return _CallBuilder(match.task).call()


class _CallBuilder(EntryBuilder):
    def __init__(self, task: Task) -> None:
        super().__init__(task)
        assert task.anchor is not None
        self.task = task
        self.given: ScriptCall = task.anchor.attrs["call"]
        self.values: tuple[Any, ...] = task.anchor.attrs["values"]

    def call(self) -> Program:
        task, given = self.task, self.given
        # Other programs may have functions of the same names.
        names = {function.name: f"script_{given.digest[:16]}_{function.name}" for function in given.module.functions}
        module = with_polls(rename_module(given.module, names), in_kernels=False)
        self.add(module.functions)
        read = [tensor for tensor in task.anchor_inputs if tensor is not None]
        inputs, outputs = [self._row_major(tensor) for tensor in read], [self._row_major(t) for t in task.outputs]
        for tensor, pointer in zip(read, inputs, strict=True):
            if pointer is not self.pointers[tensor.operand]:
                self._copy(tensor, self.pointers[tensor.operand], pointer, is_result=False)
        parameters = module.function(module.entry).params
        arguments = [
            self._value(self.values[number], var.type)
            if kind == "value"
            else _as(inputs[number] if kind == "input" else outputs[number], var.type)
            for (kind, number), var in zip(given.places, parameters, strict=True)
        ]
        self.run(Invoke(module.entry, tuple(arguments)))
        for tensor, pointer in zip(task.outputs, outputs, strict=True):
            if pointer is not self.pointers[tensor.operand]:
                self._copy(tensor, pointer, self.pointers[tensor.operand], is_result=True)
        return self.program()

    def _row_major(self, tensor: TaskTensor) -> Var:
        """Where the script finds a tensor: where it is, or in scratch memory."""
        operand, shape = tensor.operand, tensor.type.shape
        if same_shape(tensor.type.element_strides, contiguous_strides(shape)):
            return self.pointers[operand]
        return self.scratch(f"{operand.name}_rows", operand.dtype, dims.product(shape))

    def _copy(self, tensor: TaskTensor, source: Var, target: Var, *, is_result: bool) -> None:
        """Launch a kernel that copies between the tensor as it lies and a row-major one."""
        scope = KernelScope()
        dtype = tensor.operand.dtype
        inside = scope.pointer("source", dtype), scope.pointer("target", dtype)
        item = build.size_var("item")
        place = unflatten(item, [scope.size(extent) for extent in tensor.type.shape])
        strides = [scope.size(stride, "stride") for stride in tensor.type.element_strides]
        there = build.flatten(place, strides)
        element = build.load(inside[0], item if is_result else there)
        body = Store(inside[1], (there if is_result else item,), element)
        kernel = Function(f"copy_{target.name}", scope.params, body, kind="kernel", grid_vars=(item,))
        self.add([kernel])
        sizes = [self.size(dim) for dim in scope.arguments]
        self.run(
            Launch(kernel.name, (self.size(dims.product(tensor.type.shape)),), (source, target, *sizes), cost=None)
        )

    def _value(self, value: Any, type_: Type) -> Expr:
        """A size or number as an argument of the script."""
        assert isinstance(type_, dtypes.DType)
        if isinstance(value, int | DimExpr) and not isinstance(value, bool):
            return build.cast(self.size(value), type_)
        return Const(value, type_)


def _as(pointer: Expr, type_: Type) -> Expr:
    """A pointer as the script takes it."""
    if not isinstance(type_, PointerType | BufferType):
        raise ScheduleError(f"a script takes a {type_} where it is given a tensor")
    wanted = PointerType(type_.dtype, type_.space)
    return pointer if pointer.type == wanted else Bitcast(pointer, wanted)
