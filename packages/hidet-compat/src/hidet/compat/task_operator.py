"""What a task is in a graph: an operator of its definition, or a call of the program that it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from hidet import option
from hidet.api.tensors import create
from hidet.compat.option import get_bench_config
from hidet.compat.task_specs import FACTS, OPERATORS
from hidet.compiler.modules import build_ir_module
from hidet.compute.definition import Compute, Definition, Operand
from hidet.dims import product, prove_equal
from hidet.errors import DTypeError, ShapeError, VerifyError
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.compute import TensorNode
from hidet.ir.expr import Access, Expr, Reduce
from hidet.ir.func import Module
from hidet.ir.structural import structural_equal, structural_hash
from hidet.ir.task import Task
from hidet.ir.visit import accesses, has_reduce, replace_accesses, substitute, walk
from hidet.ir.written import written_parameters
from hidet.plugins.host import load_registry
from hidet.runtime.parameters import signature_of
from hidet.script_operator.operator import Place, ScriptCall, script_operator

_IMPLEMENT = {"cpu": "implement_cpu", "gpu": "implement_cuda"}
"""By kind of target, the method that gives a program."""


def task_operator(task: Task, device: str) -> tuple[OperatorSpec, Attrs]:
    """The operator of a task's nodes on a device, and the attributes of such a node."""
    modules = modules_of(task, device)
    return _call_of(task, _fastest(task, modules, device)) if modules else _defined(task)


def modules_of(task: Task, device: str) -> tuple[Module, ...]:
    """The programs that a task gives for a device; none where the rules of the target schedule it."""
    registry = load_registry()
    kind = "cpu" if device == "cpu" else registry.targets[registry.target_of_device(device).partition(":")[0]].kind
    implement = getattr(task, _IMPLEMENT.get(kind or "", ""), None)
    if implement is None:
        return ()
    try:
        given = implement(str(option.get_cache_dir()))
    except NotImplementedError:
        return ()
    return (given,) if isinstance(given, Module) else tuple(given)


def _fastest(task: Task, modules: Sequence[Module], device: str) -> Module:
    """The module to take: the first, but for a `search_space` above 0 that with the lowest time on the device."""
    sizes_are_known = all(isinstance(extent, int) for node in task.params for extent in node.shape)
    if len(modules) == 1 or not option.get_search_space() or not sizes_are_known:
        return modules[0]
    tensors = [create.zeros(node.const_shape, node.dtype, device) for node in task.params]
    warmup, number, repeat = get_bench_config()
    times = [
        median(build_ir_module(module).profile(*tensors, warmup=warmup, number=number, repeat=repeat))
        for module in modules
    ]
    return modules[times.index(min(times))]


def _defined(task: Task) -> tuple[OperatorSpec, Attrs]:
    definition = with_formulas_in_place(task.definition)

    def define(*operands: Operand | None, **attributes: Any) -> Definition:
        for node, operand in zip(task.inputs, operands, strict=True):
            _require_same(task, node, operand)
        return definition

    spec = replace(OPERATORS[_name(definition)], define=define, attributes=(*FACTS, *map(Attribute, task.attributes)))
    # Two tasks of one name are told apart by what they mean.
    digest = structural_hash(definition, operand_shapes=True)
    return spec, spec.attrs({**task.attributes, "task": task.name, "digest": digest})


def with_formulas_in_place(definition: Definition) -> Definition:
    """The definition with stages without reductions computed where they are read, if each element is read once by a
    stage: then others need no memory for them, and rules for rows know sums of them."""
    stages: list[Compute] = []
    formulas: dict[Operand, Compute] = {}
    for stage in definition.stages:
        if not isinstance(stage, Compute):
            return definition
        reads = {access.operand: None for access in accesses(stage.value) if access.operand in formulas}
        known = {operand: formulas[operand] for operand in reads if _is_read_once(operand, stage)}
        value = replace_accesses(stage.value, partial(_in_place, known)) if known else stage.value
        changed = Compute(stage.result, stage.axes, value)
        stages.append(changed)
        if stage.result not in definition.outputs and not has_reduce(value):
            formulas[stage.result] = changed
    read = {access.operand for stage in stages for access in accesses(stage.value)} | {*definition.outputs}
    kept = tuple(stage for stage in stages if stage.result in read)
    return Definition(definition.inputs, kept, definition.outputs)


def _in_place(formulas: Mapping[Operand, Compute], access: Access) -> Expr:
    formula = formulas.get(access.operand)
    if formula is None:
        return access
    return substitute(formula.value, dict(zip(formula.axes, access.indices, strict=True)))


def _is_read_once(operand: Operand, stage: Compute) -> bool:
    """Whether a stage has as many indices, those of its reductions included, as an operand has elements."""
    inner = [extent for node in walk(stage.value) if isinstance(node, Reduce) for extent in node.extents]
    total: Expr = build.index(product(stage.result.shape))
    for extent in inner:
        total = total * extent
    return structural_equal(total, build.index(product(operand.shape)))


def _name(definition: Definition) -> str:
    """Which of `OPERATORS` has such a definition."""
    last = definition.stages[-1]
    if definition.is_injective or not isinstance(last, Compute):
        return "task"
    return "task.reduction" if has_reduce(last.value) else "task.rows"


def _call_of(task: Task, module: Module) -> tuple[OperatorSpec, Attrs]:
    entry = module.function(module.entry)
    signature = signature_of(entry, written_parameters(module)[entry.name])
    given, count = signature.given, len(task.inputs)
    if len(given) != len(task.params):
        raise VerifyError(
            f"the program of task {task.name} takes {len(given)} arguments, expected {len(task.params)}",
            hint="its entry takes the inputs of the task, and then its outputs",
        )
    for parameter, node in zip(given, task.params, strict=True):
        if not parameter.is_memory or parameter.dtype != node.dtype:
            raise DTypeError(
                f"parameter {parameter.name} of the program of {task.name} is no tensor of {node.dtype.name}"
            )
        expected = node.shape
        extents = signature.shape_of(parameter.name, {p.name: n.shape for p, n in zip(given, task.params, strict=True)})
        if len(extents) != len(expected) or any(
            prove_equal(a, b) is False for a, b in zip(extents, expected, strict=True)
        ):
            raise ShapeError(f"parameter {parameter.name} of the program of {task.name} is no {node!r}")
    shapes = {parameter.name: node.shape for parameter, node in zip(given, task.params, strict=True)}
    values = signature.sizes_from(shapes)
    places: list[Place] = [
        ("input", number) if number < count else ("output", number - count) for number in range(len(given))
    ]
    places += [("value", number) for number in range(len(values))]
    call = ScriptCall(task.name, structural_hash(module), tuple(places), module)
    spec = script_operator([TensorType(node.dtype, node.shape) for node in task.outputs])
    return spec, spec.attrs({"call": call, "values": values})


def _require_same(task: Task, node: TensorNode, operand: Operand | None) -> None:
    """ShapeError unless a tensor is what the task was made for."""
    is_alike = operand is not None and operand.dtype == node.dtype and len(operand.shape) == node.ndim
    if (
        not is_alike
        or operand is None
        or any(prove_equal(a, b) is False for a, b in zip(operand.shape, node.shape, strict=True))
    ):
        raise ShapeError(f"task {task.name} was made for {node!r}, and is given another tensor")
