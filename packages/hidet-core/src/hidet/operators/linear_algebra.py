"""Operators on whole matrices, the last two axes of their inputs."""

from __future__ import annotations

from hidet.compute.definition import Definition, Operand, Routine, compute
from hidet.compute.routines import DETERMINANT
from hidet.graph.operator import OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import arithmetic_dtype, require_dtype, require_rank, same_extent, shape_text


def _determinant(x: Operand) -> Definition:
    name = "determinant"
    require_dtype(name, x, "float")
    require_rank(name, x, at_least=2)
    same_extent(x.shape[-2], x.shape[-1], f"operator {name}: rows against columns of x{shape_text(x.shape)}")
    wide = arithmetic_dtype(x.dtype)
    found = Operand("determinants", wide, x.shape[:-2])
    routine = Routine(DETERMINANT, (x,), (found,))
    if wide == x.dtype:
        return Definition((x,), (routine,), (found,))

    def rounded(*axes: Expr) -> Expr:
        return build.cast(found[axes], x.dtype)

    stage = compute(name, found.shape, rounded)
    return Definition((x,), (routine, stage), (stage.result,))


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="determinant",
        inputs=("x",),
        kind="routine",
        define=_determinant,
        doc="Determinants of square matrices x[..., n, n] -> [...]; ONNX Det, torch.linalg.det. Floating-point types.",
    ),
)
