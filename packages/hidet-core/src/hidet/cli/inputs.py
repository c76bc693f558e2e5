"""What `--input`, `--shape` and `--value` say: files, shapes for random numbers, numbers and lists of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy

inputs_option = click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]VALUE",
    help="An input: a .npy file, a shape such as 1x3x224x224 for random numbers, a number, or a list such as [1,2]. "
    "Without names, in order.",
)
shapes_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=SHAPE",
    help="The shape of an input, such as x=1x576, in place of what the model says.",
)
values_option = click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME=VALUE",
    help="Build an input into the compiled model: a .npy file, a number, or a list. Where a model needs to know it.",
)

_SHAPE = re.compile(r"\d+(x\d+)*")
_FORMS = "a .npy file, a shape such as 1x3x224x224, a number, or a list such as [1,2]"


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a user gave for an input, of which not every reading has to make sense: "4" is a number and a shape.

    array: of a file. number: also true and false, and lists. shape: for random numbers. Those that it is not are None.
    """

    text: str
    array: Any = None
    number: Any = None
    shape: tuple[int, ...] | None = None

    @property
    def value(self) -> Any | None:
        """Elements: of the file, or the number; None for a shape."""
        return self.number if self.array is None else self.array


def parse_given(name: str, text: str) -> Given:
    """What a text says of input `name`. UsageError for one that says nothing, and for a file that cannot be read."""
    if text.endswith(".npy"):
        try:
            return Given(text, array=numpy.load(text, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise click.UsageError(f"input {name}: {text} is no readable .npy file: {error}") from error
    shape = tuple(map(int, text.split("x"))) if _SHAPE.fullmatch(text) else () if not text else None
    try:
        number = json.loads(text)
        is_number = isinstance(number, bool | int | float | list)
    except (json.JSONDecodeError, RecursionError):
        number, is_number = None, False
    if shape is None and not is_number:
        raise click.UsageError(f"input {name}: {text!r} is neither {_FORMS}")
    return Given(text, number=number if is_number else None, shape=shape)


def parse_named(option: str, given: Sequence[str]) -> dict[str, Given]:
    """NAME=VALUE of an option by name. UsageError for a text without a name, and for a name given twice."""
    found: dict[str, Given] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"{option} {text}: expected NAME=VALUE")
        if name in found:
            raise click.UsageError(f"{option} {text}: input {name} is given twice")
        found[name] = parse_given(name, value)
    return found


def parse_shapes(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """What `--shape` says. UsageError for what is no shape."""
    found = parse_named("--shape", given)
    for name, entry in found.items():
        if entry.shape is None:
            raise click.UsageError(f"--shape {name}={entry.text}: expected a shape such as 1x3x224x224")
    return {name: entry.shape or () for name, entry in found.items()}


def parse_values(given: Sequence[str]) -> dict[str, Any]:
    """What `--value` says: arrays, numbers and lists. UsageError for what has no elements."""
    found = parse_named("--value", given)
    for name, entry in found.items():
        if entry.value is None:
            raise click.UsageError(f"--value {name}={entry.text}: expected a .npy file, a number, or a list")
    return {name: entry.value for name, entry in found.items()}


def parse_inputs(given: Sequence[str]) -> tuple[dict[str, Given], list[Given]]:
    """What `--input` says: by name, and in order. UsageError as of `parse_named`."""
    named: list[str] = []
    unnamed: list[str] = []
    for text in given:
        # The text of a list or a file may hold a "=" of its own, but no name has a bracket or a slash before it.
        name, separator, _ = text.partition("=")
        is_named = bool(separator) and not re.search(r"[\[/]", name)
        (named if is_named else unnamed).append(text)
    return parse_named("--input", named), [parse_given(f"number {n}", text) for n, text in enumerate(unnamed)]


def place_inputs(
    names: Sequence[str], named: Mapping[str, Given], unnamed: Sequence[Given], gone: Sequence[str] = ()
) -> dict[str, Given]:
    """What is given for each of `names`; what has no name goes to the next input that has nothing.

    gone: inputs that may be given although the model takes them no more. A name may be written as the model has it,
    where the compiled graph has letters, digits and _ alone. UsageError names an input that is unknown or given twice.
    """
    found: dict[str, Given] = {}
    for name, entry in named.items():
        own = name if name in names else re.sub(r"\W", "_", name)
        if own in names:
            if own in found:
                raise click.UsageError(f"--input {name}={entry.text}: input {own} is given twice")
            found[own] = entry
        elif name not in gone:
            known = ", ".join(names) or "none"
            raise click.UsageError(f"--input {name}={entry.text}: no such input; the model takes {known}")
    free = (name for name in names if name not in found)
    for entry in unnamed:
        place = next(free, None)
        if place is None:
            raise click.UsageError(f"--input {entry.text}: the model takes {len(names)} inputs, {', '.join(names)}")
        found[place] = entry
    return found


def random_array(generator: Any, shape: Sequence[int], dtype: Any) -> Any:
    """Standard normal numbers; for integers 0 and 1, which are valid as almost any index."""
    if numpy.issubdtype(dtype, numpy.integer) or dtype == numpy.bool_:
        return generator.integers(0, 2, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)
