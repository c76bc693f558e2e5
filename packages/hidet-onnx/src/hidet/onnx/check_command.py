"""`hidet check`: what of an ONNX model can be imported, without compiling it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from hidet.cli.model import model_argument
from hidet.cli.output import json_option, print_json
from hidet.onnx.loader import load_model
from hidet.onnx.mapping import handlers_of
from hidet.onnx.supported import survey
from hidet.plugins.host import load_registry


@click.command("check")
@model_argument
@json_option
def check_model(model: Path, as_json: bool) -> None:
    """Say which operators of the ONNX file MODEL are supported, without compiling it; exit with 1 when some are not."""
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
