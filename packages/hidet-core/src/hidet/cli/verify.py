"""`hidet verify`: whether a saved graph is whole, without running any of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from hidet.cli.output import json_option, print_json
from hidet.runtime.artifact import verify_file


@click.command()
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--sha256", metavar="HEX", help="What the SHA-256 of the whole file has to be.")
@json_option
def verify(artifact: Path, sha256: str | None, as_json: bool) -> None:
    """Check the digests and the program of ARTIFACT, which `hidet compile -o` saved; run none of its code.

    That a file is whole does not make it safe: its code runs with all your rights once you run the model. A SHA-256
    from somebody you trust tells that the file is theirs.
    """
    facts = verify_file(artifact, sha256)
    if as_json:
        print_json({"file": artifact, **dataclasses.asdict(facts)})
        return
    click.echo(f"sha256   {facts.sha256}")
    click.echo(f"format   {facts.format}")
    click.echo(f"target   {facts.target}: {facts.arch[:80]}{'…' if len(facts.arch) > 80 else ''}")
    click.echo(f"inputs   {', '.join(facts.inputs)}")
    click.echo(f"code     {facts.code_bytes} bytes")
    click.echo(f"weights  {facts.weights} tensors, {facts.weight_bytes} bytes")
