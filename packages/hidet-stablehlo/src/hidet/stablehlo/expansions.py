"""Operators of CHLO that portable artifacts hold taken apart: polynomials of dozens of steps that are one function.

StableHLO has no error functions, so exporting replaces `chlo.erfc` by what approximates it. Folder `expansions` has
these forms, as jax writes them; where an operation is computed exactly so, it is that operator again. Another form
stays what it is, and right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

import numpy

from hidet.stablehlo.program import Block, Operation, Ranked
from hidet.stablehlo.text import read_text

_BROADCASTS = ("broadcast_in_dim", "dynamic_broadcast_in_dim")


@cache
def _forms() -> Mapping[str, tuple[tuple[str, Block], ...]]:
    """By the operator of their last step: the names of functions, and how they are computed."""
    found: dict[str, list[tuple[str, Block]]] = {}
    for entry in files("hidet.stablehlo").joinpath("expansions").iterdir():
        for function in read_text(entry.read_text(), entry.name).functions.values():
            last = next(op for op in function.block.operations if op.results == function.block.returned)
            found.setdefault(last.name, []).append((function.name, function.block))
    return {name: tuple(forms) for name, forms in found.items()}


def with_functions_restored(block: Block) -> Block:
    """The block with such operators in the place of the last step of what they became. The other steps stay: nobody
    reads them any more."""
    forms = _forms()
    if not any(operation.name in forms for operation in block.operations):
        return block
    makers = _makers(block)
    return replace(block, operations=tuple(_restored(operation, makers, forms) for operation in block.operations))


def _makers(block: Block) -> dict[int, Operation]:
    return {operation.results[0]: operation for operation in block.operations if len(operation.results) == 1}


def _restored(
    operation: Operation, makers: Mapping[int, Operation], forms: Mapping[str, tuple[tuple[str, Block], ...]]
) -> Operation:
    for name, form in forms.get(operation.name, ()):
        argument = _argument(operation, makers, form)
        if argument is not None:
            return replace(operation, name=name, operands=(argument,), attributes={})
    return operation


def _argument(operation: Operation, makers: Mapping[int, Operation], form: Block) -> int | None:
    """The value that a form is computed of, if `operation` is its last step; None if it is not."""
    steps = _makers(form)
    (argument,) = form.arguments
    found: dict[int, int] = {}
    waiting = [(form.returned[0], operation.results[0])]
    while waiting:
        wanted, number = waiting.pop()
        if wanted in found:
            if found[wanted] != number:
                return None
            continue
        found[wanted] = number
        if wanted == argument:
            continue
        step, made = steps[wanted], makers.get(number)
        if step.name == "constant":
            # A constant may be made anew for every use.
            del found[wanted]
            if _constant(number, makers) != _constant(wanted, steps):
                return None
            continue
        if made is None or not _is_same_step(step, made):
            return None
        waiting += zip(step.operands, made.operands, strict=True)
    return found.get(argument)


def _is_same_step(step: Operation, made: Operation) -> bool:
    (wanted,), (type_,) = step.types, made.types
    is_typed = isinstance(wanted, Ranked) and isinstance(type_, Ranked) and wanted.dtype == type_.dtype
    directions = [operation.attributes.get("comparison_direction") for operation in (step, made)]
    names = step.name == made.name and len(step.operands) == len(made.operands)
    return names and is_typed and directions[0] == directions[1]


def _constant(number: int, makers: Mapping[int, Operation]) -> float | None:
    """The number that all elements of a value are; None for what is no constant."""
    maker = makers.get(number)
    while maker is not None and maker.name in _BROADCASTS:
        maker = makers.get(maker.operands[0])
    value = None if maker is None or maker.name != "constant" else maker.attributes.get("value")
    if not isinstance(value, numpy.ndarray) or value.size == 0 or value.dtype.kind not in "fiu":
        return None
    if value.size > 1 and any(value.strides) and not (value == value.flat[0]).all():
        return None
    return float(value.flat[0])
