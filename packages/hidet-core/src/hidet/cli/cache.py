"""`hidet cache`: the kernel cache on disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from hidet.cli.groups import PluginGroup
from hidet.cli.output import json_option, print_json


class _CacheGroup(PluginGroup):
    prefix = "cache."


@click.group(cls=_CacheGroup)
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
        print_json(shown)
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
        print_json({"deleted": deleted, "directory": kernel_cache.status().directory})
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
        print_json(shown)
        return
    for name, value in dict(key.fields).items():
        click.echo(f"{name}: {value}")
    click.echo(str(explanation))


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
