"""Operators that `register_op` made, as nodes of a graph: their scripts are compiled with the rest of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hidet.dims import DimExpr, prove_equal
from hidet.errors import DTypeError, ShapeError, UnsupportedOp
from hidet.graph import TensorType, Value
from hidet.ir.structural import structural_hash
from hidet.runtime.parameters import check_number
from hidet.script_operator.operator import Place, ScriptCall, script_operator
from hidet.torch.emitter import TorchEmitter

if TYPE_CHECKING:
    from hidet.torch.custom_op import Interface, ScriptOperator

SCRIPT = "hidet_script"
"""The attribute of an operator of torch that holds its `ScriptOperator`."""


def emit_script(
    emitter: TorchEmitter,
    script: ScriptOperator,
    arguments: Sequence[Any],
    types: Sequence[TensorType | None],
    device_type: str,
) -> tuple[Value, ...]:
    """Results of an operator on graph values, sizes and numbers.

    types: of the results, as torch infers them. UnsupportedOp for operators without a script for the device, and those
    that change an argument; ShapeError and DTypeError where arguments do not fit, or may not: running the operator in
    torch then says so.
    """
    interface, source = script.interface, script.sources.get(device_type)
    if source is None or source.module is None:
        raise UnsupportedOp(f"{interface.name} has no script for a {device_type}")
    if any(parameter.is_written for parameter in interface.inputs):
        raise UnsupportedOp(f"{interface.name} changes an argument")
    results = [type_ for type_ in types if type_ is not None]
    given = _checked(interface, arguments)
    numbers = [value for value in arguments if not isinstance(value, Value)]
    values = (*numbers, *interface.signature.sizes_from(given))
    passed: list[Place] = []
    for value in arguments:
        kind: Literal["input", "value"] = "input" if isinstance(value, Value) else "value"
        passed.append((kind, sum(known == kind for known, _ in passed)))
    places: list[Place] = [passed[number] if is_passed else ("output", number) for is_passed, number in interface.order]
    places += [("value", number) for number in range(len(numbers), len(values))]
    call = ScriptCall(interface.name, structural_hash(source.module), tuple(places), source.module)
    tensors = [value for value in arguments if isinstance(value, Value)]
    return emitter.emit_all(script_operator(results), tensors, {"call": call, "values": values})


def _checked(interface: Interface, arguments: Sequence[Any]) -> Mapping[str, Any]:
    """Shapes and numbers of the arguments by name. ShapeError or DTypeError unless they are what the script takes."""
    pairs = list(zip(interface.inputs, arguments, strict=True))
    given = {p.name: value.tensor.shape if isinstance(value, Value) else value for p, value in pairs}
    for parameter, value in pairs:
        if isinstance(value, Value) != parameter.is_memory:
            raise DTypeError(f"argument {parameter.name} of {interface.name} is {value!r}")
        if not isinstance(value, Value | DimExpr):
            check_number(interface.name, parameter, value)
        if isinstance(value, Value) and value.tensor.dtype != parameter.dtype:
            raise DTypeError(f"argument {parameter.name} of {interface.name} is {value.tensor.dtype}")
        if isinstance(value, Value) and parameter.extents is not None:
            expected = interface.signature.shape_of(parameter.name, given)
            if not all(prove_equal(a, b) is True for a, b in zip(expected, value.tensor.shape, strict=True)):
                raise ShapeError(f"argument {parameter.name} of {interface.name} has shape {value.tensor.shape}")
    return given
