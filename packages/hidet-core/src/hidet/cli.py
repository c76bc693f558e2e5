"""The `hidet` command. Plug-ins add sub-commands through `hidet_commands`; each is imported when it is used."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import click

from hidet.errors import HidetError, suggestion
from hidet.plugins.registry import Registry


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
            ctx.fail(f"No such command {cmd_name!r}; {suggestion(cmd_name, self.list_commands(ctx))}")
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


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


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
        _print_json(plugins_as_json(registry))
    else:
        print_plugins(registry, Console(), is_verbose=verbose)


@main.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check the installation; exit with 1 when something is broken."""
    from hidet.doctor import examine
    from hidet.plugins.host import discover

    checks = examine(discover(os.environ.get("HIDET_PLUGINS")))
    if as_json:
        _print_json([dataclasses.asdict(check) for check in checks])
    else:
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        for check in checks:
            click.echo(f"{click.style(f'{check.status:4}', fg=colours[check.status])} {check.name}: {check.detail}")
    if any(check.status == "fail" for check in checks):
        raise SystemExit(1)


@main.group()
def cache() -> None:
    """Look into the kernel cache, or empty it."""


@cache.command()
@json_option
def status(as_json: bool) -> None:
    """Directory, entries and sizes."""
    from hidet.cache import open_cache

    found = open_cache().status()
    if as_json:
        shown = {name: getattr(found, name) for name in ("directory", "entries", "size", "size_cap", "problem")}
        _print_json(shown)
        return
    click.echo(f"directory  {found.directory or 'none: caching is off'}")
    click.echo(f"entries    {found.entries}")
    click.echo(f"size       {_mib(found.size)} of at most {_mib(found.size_cap)}")
    if found.problem is not None:
        click.echo(f"problem    {found.problem}")


@cache.command()
@json_option
def clear(as_json: bool) -> None:
    """Delete all entries."""
    from hidet.cache import open_cache

    kernel_cache = open_cache()
    deleted = kernel_cache.clear()
    if as_json:
        _print_json({"deleted": deleted, "directory": kernel_cache.status().directory})
    else:
        click.echo(f"deleted {deleted} {'entry' if deleted == 1 else 'entries'}")


@cache.command()
@click.argument("digest")
@json_option
def explain(digest: str, as_json: bool) -> None:
    """Show the key of the entry whose name starts with DIGEST, and how the most similar other entry differs."""
    from hidet.cache import open_cache

    kernel_cache = open_cache()
    key = kernel_cache.find(digest)
    explanation = kernel_cache.explain(key)
    nearest: Path | None = explanation.nearest.path if explanation.nearest is not None else None
    if as_json:
        differences = [dataclasses.asdict(difference) for difference in explanation.differences]
        shown = {"digest": key.digest, "key": dict(key.fields), "nearest": nearest, "differences": differences}
        _print_json(shown)
        return
    for name, value in dict(key.fields).items():
        click.echo(f"{name}: {value}")
    click.echo(str(explanation))


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


if __name__ == "__main__":
    main()
