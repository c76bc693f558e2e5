"""The page of the `hidet` command: what `--help` says, of every sub-command that is installed."""

from __future__ import annotations

from pathlib import Path

import click

from docs.generate.reference import write
from hidet.cli import main

_WIDTH = 90
_ABOUT = """`python -m hidet` is the same. With `--json` commands print JSON, and nothing else, to
standard output.

| exit code | says |
|---|---|
| 0 | all is right |
| 1 | what was asked for is wrong or cannot be done: a model that does not compile, a check that fails |
| 2 | the question cannot be understood: an unknown command, option or file |

Plug-ins add commands; these are of hidet's own wheels."""


def write_command_line(path: Path) -> None:
    """Write the page."""
    parts = [
        "# The `hidet` command",
        _ABOUT,
        *_commands(main, click.Context(main, info_name="hidet")),
    ]
    write(path, "\n\n".join(parts) + "\n")


def _commands(command: click.Command, context: click.Context) -> list[str]:
    context.max_content_width = context.terminal_width = _WIDTH
    level = "#" * min(2 + context.command_path.count(" "), 4)
    parts = [f"{level} `{context.command_path}`", f"```text\n{command.get_help(context)}\n```"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                parts += _commands(found, click.Context(found, info_name=name, parent=context))
    return parts
