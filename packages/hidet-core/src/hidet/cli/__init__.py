"""The `hidet` command. Plug-ins add sub-commands through `hidet_commands`; each is imported when it is used."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import click

from hidet.cli.cache import cache
from hidet.cli.groups import PluginGroup
from hidet.cli.output import json_option, print_json


@click.group(cls=PluginGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hidet-core", prog_name="hidet")
def main() -> None:
    """The hidet deep-learning compiler."""


@main.command()
@click.option("-v", "--verbose", is_flag=True, help="Also name every spec, and print tracebacks.")
@click.option("--op", metavar="NAME", help="List the schedule rules for this operator instead, as they are asked.")
@click.option("--target", "targets", multiple=True, metavar="NAME", help="With --op: on this target; all by default.")
@json_option
def plugins(verbose: bool, op: str | None, targets: Sequence[str], as_json: bool) -> None:
    """List plug-ins, what they offer, and what is wrong with them."""
    from rich.console import Console

    from hidet.plugins.host import discover
    from hidet.plugins.report import plugins_as_json, print_plugins, print_rules, rules_for

    # Not `load_registry`: the problems are the output here, so they are neither warned about nor raised.
    registry = discover(os.environ.get("HIDET_PLUGINS"))
    if targets and op is None:
        raise click.UsageError("--target goes with --op, such as --op softmax")
    if op is not None:
        rules = rules_for(registry, op, targets)
        print_json(rules) if as_json else print_rules(rules, Console())
    elif as_json:
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
