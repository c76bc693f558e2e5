"""`hidet measure`: the numbers that cost models know of a device, measured on it."""

from __future__ import annotations

import click

from hidet.cli.output import json_option, print_json
from hidet.context import make_context
from hidet.schedule.device_constants import constants_path, measure_constants
from hidet.target.constants import constants_to_json


@click.command("measure")
@click.option("--target", default="cpu", show_default=True, help="cpu, cuda, cuda:1 …")
@json_option
def measure(target: str, as_json: bool) -> None:
    """Measure what cost models know of a device, in less than two seconds, and keep it beside the kernel cache.

    Tuners rank what they try by it. Compilations without a tuner do not depend on it.
    """
    ctx = make_context(target)
    found = measure_constants(ctx)
    if as_json:
        print_json({"file": constants_path(ctx), **constants_to_json(found)})
        return
    click.echo(f"device   {found.device}")
    click.echo(f"launch   {found.launch * 1e6:.2f} us, {found.item * 1e9:.1f} ns for each item")
    for what, rates in (("fma", found.fma), ("matrix", found.matrix)):
        shown = ", ".join(f"{name} {rate / 1e9:.1f}" for name, rate in rates.items())
        click.echo(f"{what:8} {shown or 'none'}{' G multiply-adds/s of one core' if shown else ''}")
    click.echo(
        f"latency  {found.fma_latency * 1e9:.2f} ns of a multiply-add, {found.memory_latency * 1e9:.0f} of memory"
    )
    for level in found.levels:
        size = f"{level.nbytes / 1024:.0f} KiB, " if level.nbytes else ""
        rates_text = f"{level.core_bandwidth / 1e9:.1f} GB/s, {level.device_bandwidth / 1e9:.1f} of all cores"
        click.echo(f"{level.name:8} {size}{rates_text}")
    click.echo(f"kept in  {constants_path(ctx)}")
