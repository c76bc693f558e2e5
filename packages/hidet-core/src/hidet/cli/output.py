"""What commands print: JSON for programs, where people ask for it."""

from __future__ import annotations

import json

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def print_json(value: object) -> None:
    """Print a value; what JSON does not know, such as a path, as its text."""
    click.echo(json.dumps(value, indent=2, default=str))
