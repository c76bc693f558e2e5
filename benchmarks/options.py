"""Command-line options that the benchmarks share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import click
from rich.console import Console

Row = TypeVar("Row")


def names_from(known: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], tuple[str, ...]]:
    """Return a click callback that splits a comma-separated value and refuses names outside `known`."""

    def split(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
        names = tuple(value.split(","))
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", ctx, param)
        return names

    return split


def rows_of(parse: Callable[[str], Row]) -> Callable[[click.Context, click.Parameter, str], tuple[Row, ...]]:
    """Return a click callback for comma-separated rows. parse: makes a row of its name, or raises ValueError."""

    def split(ctx: click.Context, param: click.Parameter, value: str) -> tuple[Row, ...]:
        try:
            return tuple(map(parse, value.split(",")))
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return split


def thread_counts(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Click callback for comma-separated positive numbers of threads."""
    counts = tuple(int(part) if part.isdecimal() else 0 for part in value.split(","))
    if not all(counts):
        raise click.BadParameter(f"{value!r} is not a list of positive numbers such as 1,2", ctx, param)
    return counts


def report_console() -> Console:
    """Return a console for results: as wide as the terminal, 120 columns where the output goes to a file."""
    return Console() if sys.stdout.isatty() else Console(width=120)
