"""`hidet cache log` and `hidet completion`."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict

import click
from click.shell_completion import get_completion_class

from hidet.cli import main
from hidet.cli.output import json_option, print_json
from hidet.report.compile_log import log_path, read_log

_VARIABLE = "_HIDET_COMPLETE"
"""By which click knows that a shell asks."""


@click.command("log")
@click.option("-n", "most", type=click.IntRange(min=1), default=20, show_default=True, help="Lines, the newest ones.")
@json_option
def log(most: int, as_json: bool) -> None:
    """Show what was compiled when, for which model, and how long it took."""
    found = deque(read_log(), most)
    if as_json:
        print_json([asdict(line) for line in found])
        return
    if not found:
        click.echo(f"nothing was compiled yet: {log_path()} is not there")
        return
    rows = [("when", "seconds", "target", "kernels", "from cache", "model", "place")]
    for line in found:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.when))
        cached = f"{line.cached} of {line.modules}"
        rows.append((when, f"{line.seconds:.2f}", line.target, str(line.kernels), cached, line.model, line.place))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a script that completes commands and options: `hidet completion bash >> ~/.bashrc`."""
    found = get_completion_class(shell)
    assert found is not None, "click has these three"
    click.echo(found(main, {}, "hidet", _VARIABLE).source())
