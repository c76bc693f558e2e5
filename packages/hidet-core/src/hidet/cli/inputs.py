"""What `--input` says: files, or shapes for random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import numpy

inputs_option = click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]VALUE",
    help="An input: a .npy file, or a shape such as 1x3x224x224 for random numbers. Without names, in order.",
)


def parse_inputs(given: Sequence[str], names: Sequence[str]) -> dict[str, numpy.ndarray[Any, Any] | list[int]]:
    """Arrays from files, and shapes, by the names of a model's inputs. What has no name goes to the next input.

    UsageError names an input that is unknown or given twice, and a value that is neither a file nor a shape.
    """
    values: dict[str, numpy.ndarray[Any, Any] | list[int]] = {}
    unnamed = iter(names)
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            name, value = next((n for n in unnamed if n not in values), ""), text
        if name not in names:
            raise click.UsageError(f"--input {text}: no such input; the model takes {', '.join(names) or 'none'}")
        if name in values:
            raise click.UsageError(f"--input {text}: input {name} is given twice")
        values[name] = _loaded(name, value) if value.endswith(".npy") else _shape(name, value)
    return values


def _loaded(name: str, file: str) -> Any:
    import numpy

    try:
        return numpy.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"input {name}: {file} is no readable .npy file: {error}") from error


def _shape(name: str, text: str) -> list[int]:
    extents = text.split("x") if text else []
    if not all(extent.isdecimal() for extent in extents):
        raise click.UsageError(f"input {name}: {text!r} is neither a .npy file nor a shape such as 1x3x224x224")
    return [int(extent) for extent in extents]


def random_array(generator: Any, shape: Sequence[int], dtype: Any) -> Any:
    """Standard normal numbers; for integers 0 and 1, which are valid as almost any index."""
    import numpy

    if numpy.issubdtype(dtype, numpy.integer) or dtype == numpy.bool_:
        return generator.integers(0, 2, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)
