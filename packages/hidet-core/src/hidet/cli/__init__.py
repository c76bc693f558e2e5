"""The `hidet` command. Plug-ins add sub-commands through `hidet_commands`; each is imported when it is used."""

from __future__ import annotations

import dataclasses
import os

import click

from hidet.cli.cache import cache
from hidet.cli.output import json_option, print_json
from hidet.errors import HidetError
from hidet.plugins.registry import Registry
from hidet.plugins.wheels import command_hint


def _registry() -> Registry:
    from hidet.plugins.host import load_registry

    return load_registry()


class _PluginGroup(click.Group):
    """Built-in commands first, then those of plug-ins; hidet's errors become messages instead of tracebacks."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_registry().commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        spec = _registry().commands.get(cmd_name)
        if spec is None:
            ctx.fail(f"No such command {cmd_name!r}; {command_hint(cmd_name, self.list_commands(ctx))}")
        found = spec.resolve()
        if not isinstance(found, click.Command):
            raise click.ClickException(f"command {cmd_name!r}: {spec.load} is {found!r}, expected a click.Command")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`: the line of a plug-in's command comes from its spec, so that none is imported."""
        rows = [(name, command.get_short_help_str(limit=80)) for name, command in self.commands.items()]
        rows += [(name, spec.doc) for name, spec in _registry().commands.items() if name not in self.commands]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HidetError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_PluginGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hidet-core", prog_name="hidet")
def main() -> None:
    """The hidet deep-learning compiler."""


@main.command()
@click.option("-v", "--verbose", is_flag=True, help="Also name every spec, and print tracebacks.")
@json_option
def plugins(verbose: bool, as_json: bool) -> None:
    """List plug-ins, what they offer, and what is wrong with them."""
    from rich.console import Console

    from hidet.plugins.host import discover
    from hidet.plugins.report import plugins_as_json, print_plugins

    # Not `load_registry`: the problems are the output here, so they are neither warned about nor raised.
    registry = discover(os.environ.get("HIDET_PLUGINS"))
    if as_json:
        print_json(plugins_as_json(registry))
    else:
        print_plugins(registry, Console(), is_verbose=verbose)


@main.command()
@click.option("--paste", is_flag=True, help="Print text for an issue, without the name of your home directory.")
@json_option
def doctor(paste: bool, as_json: bool) -> None:
    """Check the installation, and that a kernel runs on each target; exit with 1 when something is broken."""
    from hidet.doctor import examine, report
    from hidet.plugins.host import discover

    checks = examine(discover(os.environ.get("HIDET_PLUGINS")))
    if as_json:
        print_json([dataclasses.asdict(check) for check in checks])
    elif paste:
        click.echo(f"```text\n{report(checks)}\n```".replace(os.path.expanduser("~"), "~"))
    else:
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        click.echo(report(checks, lambda status: click.style(f"{status:4}", fg=colours.get(status))))
    if any(check.status == "fail" for check in checks):
        raise SystemExit(1)


main.add_command(cache)
