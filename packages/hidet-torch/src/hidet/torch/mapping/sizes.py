"""Numbers computed from sizes at run time: floats, since whole sizes are dims that torch's inference gives."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.dims import DimExpr
from hidet.frontend import Handler, Number
from hidet.graph import Value
from hidet.torch.emitter import Scalar, TorchEmitter

Real = Scalar | Number | DimExpr

_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "pow": "pow",
    "mod": "remainder",
    "floordiv": "floor_divide",
}
_UNARY = {
    "operator.neg": "neg",
    "math.sqrt": "sqrt",
    "torch._sym_sqrt": "sqrt",
    "torch.sym_sqrt": "sqrt",
    "math.floor": "floor",
    "math.ceil": "ceil",
}

EXACT = frozenset({"torch.sym_float", "torch.sym_max", "torch.sym_min", "operator.neg"})
"""Operators whose result is one of their operands, whole numbers up to 2^53 and the sign apart."""

ROUNDED_TO_NEAREST = EXACT | {
    *("operator.add", "operator.sub", "operator.mul", "operator.truediv"),
    *("math.sqrt", "torch._sym_sqrt", "torch.sym_sqrt"),
}
"""Operators whose result every machine rounds to the same float."""


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    found: dict[str, Handler] = {f"operator.{name}": _binary(core) for name, core in _BINARY.items()}
    found |= {name: _unary(core) for name, core in _UNARY.items()}
    return found | {
        "torch.sym_float": _sym_float,
        "torch.sym_max": _binary("maximum"),
        "torch.sym_min": _binary("minimum"),
    }


def _real(e: TorchEmitter, number: Real) -> Value:
    return e.operand(number, dtypes.f64)


def _binary(core: str) -> Handler:
    return lambda e, a, b: Scalar(e.emit(core, _real(e, a), _real(e, b)))


def _unary(core: str) -> Handler:
    return lambda e, a: Scalar(e.emit(core, _real(e, a)))


def _sym_float(e: TorchEmitter, a: Real) -> Scalar:
    return Scalar(_real(e, a))
