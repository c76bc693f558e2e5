"""`hidet.graph.Operator`: an operator of a user's own, made of a task, on tensors."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from hidet.api.flow import FlowGraph, Operation
from hidet.api.flow.operation import as_tensors, call, device_of
from hidet.api.tensors.create import symbol
from hidet.api.tensors.tensor import Tensor
from hidet.compat.task_operator import task_operator
from hidet.compat.task_specs import OPERATORS
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context_on, options_from
from hidet.graph.attrs import Attrs
from hidet.graph.operator import OperatorSpec
from hidet.ir.task import Task
from hidet.plugins.host import load_registry
from hidet.runtime.compiled import CompiledGraph


def kind_of(spec: OperatorSpec, attrs: Attrs) -> str:
    """What tells the operators of a class from others: the name, and of tasks that of the task."""
    call: Any = attrs.get("call")
    task = attrs.get("task") if spec.name in OPERATORS else getattr(call, "name", None)
    return spec.name if task is None else f"task {task}"


class OperatorKind(type):
    """Classes of operators. What a graph holds is an `Operation`, which is an instance of the class of its name."""

    names: set[str]

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, Operation):
            return False
        is_own = cls in type(instance).__mro__
        return is_own or cls is Operator or kind_of(instance.op, instance.attrs) in cls.names


class Operator(Operation, metaclass=OperatorKind):
    """A task applied to tensors; to be derived from.

    class Scale(hidet.graph.Operator):
        def __init__(self, x):
            super().__init__(inputs=[x], attributes={}, task=ScaleTask(input_like(x, "x")))

    outputs: computed at once, or symbolic where one of the inputs is. attributes: for those who ask.
    """

    names: ClassVar[set[str]] = set()

    def __init_subclass__(cls) -> None:
        cls.names = set()

    def __init__(self, inputs: Sequence[Any], attributes: Mapping[str, Any], task: Task) -> None:
        tensors = as_tensors(inputs)
        spec, attrs = task_operator(task, device_of(tensors))
        self.task: Task | None = task
        self.attributes = dict(attributes)
        self._apply(spec, tensors, attrs)

    def _apply(self, spec: OperatorSpec, tensors: Sequence[Tensor | None], attrs: Attrs) -> None:
        type(self).names.add(kind_of(spec, attrs))
        Operation.__init__(self, spec, tensors, attrs)
        if not any(tensor is not None and tensor.is_symbolic() for tensor in tensors):
            kinds = tuple(None if t is None else (tuple(t.shape), t.dtype) for t in tensors)
            compiled = _program(_Key(spec, attrs), kinds, device_of(tensors))
            self.outputs = call(compiled, [tensor for tensor in tensors if tensor is not None])

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.op.name if self.task is None else self.task.name

    @property
    def device(self) -> str:
        """The device of its tensors."""
        return device_of(self.inputs)

    def get_output(self, index: int) -> Tensor:
        """Result number `index`."""
        return self.outputs[index]

    def run(self) -> list[Tensor]:
        """The results."""
        return list(self.outputs)


class _Key:
    """An operator with attributes, equal to others that mean the same: a task is a new operator at every call."""

    __slots__ = ("attrs", "spec")

    def __init__(self, spec: OperatorSpec, attrs: Attrs) -> None:
        self.spec = spec
        self.attrs = attrs

    def __hash__(self) -> int:
        return hash(self.attrs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and (self.spec.name, self.attrs) == (other.spec.name, other.attrs)


@functools.lru_cache(maxsize=256)
def _program(key: _Key, kinds: tuple[Any, ...], device: str) -> CompiledGraph:
    """One operator, compiled as it is written: settings of models say nothing to it."""
    given = [None if kind is None else symbol(kind[0], kind[1], device) for kind in kinds]
    operation = Operation(key.spec, given, key.attrs)
    flow = FlowGraph([tensor for tensor in given if tensor is not None], operation.outputs, [operation])
    options = replace(options_from({"search_space": 0}), plugin_options={})
    return compile_graph(flow.graph, make_context_on(device, options))


class BuiltinOperator(Operator):
    """An operator of hidet by the name of a class: `MatmulOp(a, b).outputs[0]`. Attributes are keywords."""

    operator: ClassVar[str]

    def __init__(self, *inputs: Any, **attributes: Any) -> None:
        spec = load_registry().operators[self.operator]
        self.task = None
        self.attributes = dict(attributes)
        self._apply(spec, as_tensors(inputs), spec.attrs(attributes))


def builtin_operator(name: str, operator: str) -> type[BuiltinOperator]:
    """The class called `name` of the nodes of an operator of hidet."""
    made = OperatorKind(name, (BuiltinOperator,), {"operator": operator, "__doc__": f"Nodes of `{operator}`."})
    made.names = {operator}
    return made  # type: ignore[return-value]  # its base says so
