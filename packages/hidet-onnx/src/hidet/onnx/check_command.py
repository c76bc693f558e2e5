"""`hidet check`: what of an ONNX model can be imported, without compiling it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from hidet.cli.model import model_argument
from hidet.cli.output import json_option, print_json
from hidet.onnx.loader import load_model
from hidet.onnx.mapping import handlers_of
from hidet.onnx.supported import survey
from hidet.plugins.host import load_registry
from hidet.plugins.wheels import command_hint


class _OrAccuracy(click.Command):
    """`hidet check --accuracy …` is `hidet accuracy …`, which hidet-report offers for models of every kind."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if "--accuracy" not in args:
            return super().make_context(info_name, args, parent, **extra)
        spec = load_registry().commands.get("accuracy")
        if spec is None:
            raise click.UsageError(f"--accuracy: {command_hint('accuracy', ())}")
        command = spec.resolve()
        assert isinstance(command, click.Command)
        return command.make_context("accuracy", [text for text in args if text != "--accuracy"], parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


@click.command("check", cls=_OrAccuracy)
@model_argument
@click.option("--accuracy", is_flag=True, help="As `hidet accuracy MODEL`: compare each kernel with float64.")
@json_option
def check_model(model: Path, accuracy: bool, as_json: bool) -> None:
    """Say which operators of the ONNX file MODEL are supported, without compiling it; exit with 1 when some are not."""
    assert not accuracy, "another command is run for it"
    loaded = load_model(model)
    found = survey(loaded, handlers_of(load_registry()))
    nodes = sum(found.counts.values())
    unknown = sum(len(entry.nodes) for entry in found.unsupported)
    share = 100.0 if not nodes else 100.0 * (nodes - unknown) / nodes
    kinds = len(found.counts)
    known_kinds = kinds - len(found.unsupported)
    if as_json:
        missing = [{"operator": e.operator, "opset": e.opset, "nodes": e.nodes} for e in found.unsupported]
        print_json(
            {
                "model": model,
                "opsets": {domain or "ai.onnx": version for domain, version in loaded.opsets.items()},
                "nodes": nodes,
                "operators": dict(found.counts),
                "supported_percent": share,
                "unsupported": missing,
            }
        )
    else:
        opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in loaded.opsets.items())
        # Rounded down: 99.96 % is not all.
        percent = int(share * 10) / 10
        click.echo(f"opset      {opsets}")
        click.echo(f"nodes      {nodes}, {nodes - unknown} of them supported ({percent:g} %)")
        click.echo(f"operators  {kinds}, {known_kinds} of them supported")
        for operator, count in Counter(found.counts).most_common():
            missing_one = any(entry.operator == operator for entry in found.unsupported)
            click.echo(f"  {count:6}  {operator}" + ("  not supported" if missing_one else ""))
        for entry in found.unsupported:
            click.echo(f"not supported: {entry}")
    if found.unsupported:
        raise SystemExit(1)
