"""Compute definitions: what operators mean, and their numpy evaluation."""

from hidet.compute.definition import (
    COMBINERS,
    Combiner,
    Compute,
    Definition,
    Operand,
    Routine,
    Scan,
    Scatter,
    compute,
    reduce,
    single,
)

__all__ = [
    "COMBINERS",
    "Combiner",
    "Compute",
    "Definition",
    "Operand",
    "Routine",
    "Scan",
    "Scatter",
    "compute",
    "reduce",
    "single",
]
