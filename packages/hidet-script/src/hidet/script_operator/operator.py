"""Operators that users write as scripts: a node calls the entry of a module of thread IR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hidet import dtypes
from hidet.compute.definition import Definition, Fit, Operand, Routine
from hidet.compute.routine import RoutineSpec
from hidet.dims import DimExpr
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import TensorType
from hidet.ir.func import Module

SCRIPT = "script"
"""The name of the operator."""
ROUTINE = RoutineSpec(
    name=SCRIPT,
    operands=("inputs*",),
    results=("outputs*",),
    attributes=(("digest", ""),),
    doc="A module of thread IR that a user wrote, by its structural hash; the operator says what it means.",
)

Place = tuple[Literal["input", "output", "value"], int]


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """How a node calls a module.

    name: of the user's operator. digest: the structural hash of the module. places: what each parameter of the module's
    entry gets: an input or an output of the node, or one of its attribute `values`, by number.
    """

    name: str
    digest: str
    places: tuple[Place, ...]
    module: Module = field(compare=False, repr=False)

    def fits(self, values: Sequence[Any]) -> tuple[Fit, ...]:
        """The sizes among `values` that the entry takes as integers of other types than sizes have."""
        entry = self.module.function(self.module.entry)
        return tuple(
            Fit(values[number], var.type, f"argument {var.name} of {self.name}")
            for (kind, number), var in zip(self.places, entry.params, strict=True)
            if kind == "value" and isinstance(values[number], DimExpr)
            if isinstance(var.type, DType) and var.type.is_int and var.type != dtypes.i64
        )


def script_operator(results: Sequence[TensorType]) -> OperatorSpec:
    """The operator for nodes whose results have these types. The script sees inputs and results row-major.

    Attributes: `call`, a ScriptCall, and `values`: sizes, numbers and truth values.
    """

    def define(*operands: Operand, call: ScriptCall, values: tuple[Any, ...]) -> Definition:
        made = tuple(Operand(f"y{number}", type_.dtype, type_.shape) for number, type_ in enumerate(results))
        routine = Routine(ROUTINE, operands, made, (("digest", call.digest),))
        return Definition(operands, (routine,), made, fits=call.fits(values))

    def evaluate(arrays: Sequence[Any], attrs: Attrs) -> Sequence[Any]:
        return _interpreted(results, arrays, attrs)

    return OperatorSpec(
        name=SCRIPT,
        inputs=("inputs*",),
        attributes=(Attribute("call"), Attribute("values")),
        kind="routine",
        define=define,
        evaluate=evaluate,
        doc="A script that the user has registered as an operator.",
    )


def _interpreted(results: Sequence[TensorType], arrays: Sequence[Any], attrs: Attrs) -> Sequence[Any]:
    """Results of a script by the interpreter of thread IR. UnsupportedOp where their sizes are symbolic."""
    import numpy

    from hidet.ir.interpret import run_module

    call: ScriptCall = attrs["call"]
    if not all(isinstance(extent, int) for type_ in results for extent in type_.shape):
        raise UnsupportedOp(f"operator {call.name} is not interpreted: sizes of its results are symbolic")
    made = [numpy.zeros(type_.shape, type_.dtype.numpy()) for type_ in results]  # type: ignore[type-var]  # ints
    given = {"input": [numpy.ascontiguousarray(array) for array in arrays], "output": made, "value": attrs["values"]}
    run_module(call.module, [given[kind][number] for kind, number in call.places])
    return made
