"""Errors for elements and sizes that must be known while importing: which inputs of the model they come from."""

from __future__ import annotations

from hidet.dims import symbols
from hidet.errors import ValueNeeded
from hidet.frontend.contents import HINT, Contents
from hidet.graph import Value
from hidet.graph.symbols import symbols_of
from hidet.graph.types import dims_of


def value_needed(message: str, inputs: tuple[str, ...], shapes: tuple[str, ...] = (), hint: str = HINT) -> ValueNeeded:
    """The error that elements of `inputs`, or sizes of `shapes`, must be known, and how they are given.

    hint: see `Contents.hint`.
    """
    if not inputs and not shapes:
        return ValueNeeded(message, ())
    parts = [f"input {name!r}" for name in inputs] + [f"the sizes of input {name!r}" for name in shapes]
    python = ["values={" + ", ".join(f"{name!r}: …" for name in inputs) + "}"] if inputs else []
    python += ["shapes={" + ", ".join(f"{name!r}: (…)" for name in shapes) + "}"] if shapes else []
    shell = [f"--value {name}=…" for name in inputs] + [f"--shape {name}=1x8" for name in shapes]
    return ValueNeeded(
        f"{message}; this is computed from {', '.join(parts)}",
        inputs,
        shapes,
        hint=hint.format(python=", ".join(python), shell=" ".join(shell)),
    )


def in_branch(error: ValueNeeded, deciding: tuple[str, ...]) -> ValueNeeded:
    """The error of a branch that inputs `deciding` may choose or not."""
    more = tuple(name for name in deciding if name not in (*error.inputs, *error.deciding))
    if not more:
        return error
    names = ", ".join(map(repr, more))
    flags = " ".join(f"--value {name}=…" for name in more)
    values = ", ".join(f"{name!r}: …" for name in more)
    made = ValueNeeded(
        f"{error.message}; whether this branch is taken is computed from input {names}",
        error.inputs,
        error.shapes,
        hint=f"{error.hint}; the branch is chosen by values={{{values}}}, {flags}",
    )
    made.deciding = (*error.deciding, *more)
    made.loc = error.loc
    return made


def sources_of(value: Value, known: Contents) -> tuple[set[str], set[str]]:
    """Names of the model's inputs that a value is computed from: of those whose elements are not known, and of those
    with sizes that are not."""
    values: set[str] = set()
    shapes: set[str] = set()
    seen: set[Value] = set()
    open_sizes: set[str] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in known.inputs and current not in known.given:
            values.add(known.inputs[current])
        if current in known.outer:
            around, source = known.outer[current]
            more = sources_of(source, around)
            values |= more[0]
            shapes |= more[1]
        node = known.builder.producer(current)
        if node is not None:
            waiting += node.values
            open_sizes |= {symbol.name for symbol in symbols_of(tuple(node.attrs.values()))}
    return values, (shapes | _inputs_with(open_sizes, known)) - values


def sources_of_sizes(value: Value, known: Contents) -> set[str]:
    """Names of the model's inputs that the open extents of a value come from."""
    return _inputs_with({symbol.name for size in dims_of(value.type) for symbol in symbols(size)}, known)


def _inputs_with(names: set[str], known: Contents) -> set[str]:
    """Names of the model's inputs that have one of the symbols of these names among their extents."""
    return {
        name
        for around in known.around()
        for entry, name in around.inputs.items()
        if not names.isdisjoint(symbol.name for size in dims_of(entry.type) for symbol in symbols(size))
    }
