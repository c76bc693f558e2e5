"""`hidet tune`: measure a model's schedules, and look into the store of choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import click

from hidet.cli.inputs import parse_shapes, parse_values, shapes_option, values_option
from hidet.cli.model import model_argument
from hidet.cli.output import json_option, print_json
from hidet.errors import OptionError
from hidet.tuning.distil import distil as distilled
from hidet.tuning.distil_pack import write_pack
from hidet.tuning.merge import entries_in, merged
from hidet.tuning.report_html import report_html
from hidet.tuning.report_live import LiveTable
from hidet.tuning.store import Store, line_of, store_path
from hidet.tuning.strategy_history import History
from hidet.tuning.tuner import tune

_SQLITE = b"SQLite format 3"
"""Files of SQLite begin so."""

store_option = click.option(
    "--store", default="", metavar="FILE", help="The store; by default HIDET_TUNE_STORE, or beside the kernel cache."
)


def _store(given: str) -> Store:
    path = store_path(given)
    if path is None:
        raise OptionError("there is no store: it is off", hint="--store names a file")
    return Store(path)


class _RunFirst(click.Group):
    """`hidet tune MODEL` is `hidet tune run MODEL`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_named = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if is_named else ["run", *args])


@click.group("tune", cls=_RunFirst)
def tune_group() -> None:
    """Measure schedules of a model (`hidet tune MODEL`), and look into what was kept."""


@tune_group.command("run")
@model_argument
@click.option("--budget", default="60s", show_default=True, help='Time for all of it, as "90s" or "2m".')
@shapes_option
@values_option
@click.option("--target", default="auto", show_default=True, help="What to measure on.")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads; choices are for this number of them.")
@store_option
@click.option(
    "--search-space",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    help="How many points are tried: 1 those that rules expect to be fast, 2 all.",
)
@click.option("--strategy", default="", metavar="NAME", help="How points are searched; by default 'halving'.")
@click.option("--executor", default="", metavar="NAME", help="Where programs are measured; by default 'local'.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write a page of HTML with all of it.")
@json_option
def run(
    model: Path,
    budget: str,
    shapes: Sequence[str],
    values: Sequence[str],
    target: str,
    threads: int | None,
    store: str,
    search_space: int,
    strategy: str,
    executor: str,
    report: Path | None,
    as_json: bool,
) -> None:
    """Measure the schedules of MODEL, and keep those that are faster."""
    with LiveTable() as progress:
        found = tune(
            str(model),
            budget=budget,
            target=target,
            options={"threads": threads, "search_space": search_space},
            shapes=parse_shapes(shapes),
            values=parse_values(values),
            store=store,
            strategy=strategy,
            executor=executor,
            progress=progress,
        )
    if as_json:
        print_json({"model": model, **found.as_json()})
    else:
        click.echo(str(found))
    if report is not None:
        try:
            report.write_text(report_html(found, model.name), encoding="utf-8")
        except OSError as error:
            raise click.FileError(str(report), hint=error.strerror) from error


@tune_group.command()
@store_option
@json_option
def show(store: str, as_json: bool) -> None:
    """The choices, a line each."""
    found = _store(store)
    entries = found.entries()
    if as_json:
        print_json([{**asdict(entry), "gain": entry.default_seconds / entry.seconds} for entry in entries])
        return
    for entry in entries:
        change = f"{entry.default_params} -> {entry.params}" if entry.params != entry.default_params else "default"
        click.echo(
            f"{entry.summary}: {entry.meaning.rule}, {change}, {entry.default_seconds * 1e6:.1f} us -> "
            f"{entry.seconds * 1e6:.1f} us, {entry.tried} of {entry.points} points ({entry.meaning.arch})"
        )
    click.echo(f"{len(entries)} choices in {found.path}")


@tune_group.command()
@store_option
@json_option
def clear(store: str, as_json: bool) -> None:
    """Forget all choices."""
    found = _store(store)
    deleted = found.clear()
    if as_json:
        print_json({"deleted": deleted, "store": found.path})
    else:
        click.echo(f"deleted {deleted} choices of {found.path}")


@tune_group.command("export")
@click.argument("file", type=click.File("w", encoding="utf-8"), default="-")
@store_option
def export_choices(file: IO[str], store: str) -> None:
    """Write the choices to FILE (- for stdout), a line of JSON each."""
    for line in _store(store).export_lines():
        file.write(line + "\n")


@tune_group.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@store_option
@json_option
def import_choices(file: IO[str], store: str, as_json: bool) -> None:
    """Add the choices of FILE (- for stdin), which `hidet tune export` wrote; they replace those of the same tasks."""
    found = _store(store)
    count = found.import_lines(file)
    if as_json:
        print_json({"imported": count, "store": found.path})
    else:
        click.echo(f"{count} choices are in {found.path} now")


@tune_group.command()
@click.argument("store", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="A new folder.")
@json_option
def distil(store: Path, output: Path, as_json: bool) -> None:
    """Write the project of a wheel that chooses as STORE does, by small decision trees over sizes.

    STORE is a store, or what `hidet tune export` wrote, which leaves out how long other points take. The wheel is
    called as the folder is. Its decisions are Python to read, review and edit.
    """
    with TemporaryDirectory() as folder:
        history = History(store)
        if not store.read_bytes().startswith(_SQLITE):
            history = History(Path(folder) / "choices.sqlite")
            with store.open(encoding="utf-8") as lines:
                history.import_lines(lines)
        found = distilled(history)
    write_pack(found, output)
    if as_json:
        print_json([asdict(each) for each in found])
        return
    for each in found:
        click.echo(
            f"{each.decision.rule} on {each.decision.tensors}: {each.reproduced} of {each.tasks} tasks as measured, "
            f"{each.kept:.2f} of {each.gain:.2f} times as fast as by default, {each.loss:.1%} slower than the best "
            f"({each.left_out:.1%} for tasks left out)"
        )
    click.echo(f"{len(found)} decisions in {output}: review them, then pip install {output}")


@tune_group.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="A new file.")
@json_option
def merge(files: Sequence[Path], output: Path, as_json: bool) -> None:
    """Write the choices of all FILES, stores or what `hidet tune export` wrote, as one.

    OUTPUT is a store where it ends in .sqlite, lines of JSON elsewhere. Of two choices for a task that is kept whose
    search came further.
    """
    entries = merged(map(entries_in, files))
    if output.suffix == ".sqlite":
        Store(output.absolute()).put(entries)
    else:
        output.write_text("".join(f"{line_of(entry)}\n" for entry in entries), encoding="utf-8")
    if as_json:
        print_json({"choices": len(entries), "output": output})
    else:
        click.echo(f"{len(entries)} choices in {output}")
