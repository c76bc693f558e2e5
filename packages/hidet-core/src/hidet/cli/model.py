"""`hidet compile` and `hidet run`: a model in a file, compiled and called from the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hidet.cli.inputs import inputs_option, parse_inputs, random_array
from hidet.cli.output import json_option, print_json

if TYPE_CHECKING:
    from hidet.runtime.compiled import CompiledGraph

ARTIFACT_SUFFIX = ".hidet"

model_argument = click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
target_option = click.option("--target", default="auto", show_default=True, help="What to compile for.")
settings_option = click.option(
    "--option", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the compilation, such as threads=2."
)


@click.command("compile")
@model_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Save what was compiled there.")
@target_option
@settings_option
@json_option
def compile_model(model: Path, output: Path | None, target: str, settings: Sequence[str], as_json: bool) -> None:
    """Compile MODEL and say what became of it."""
    compiled = compiled_from(model, target, settings)
    if output is not None:
        compiled.save(output)
    report = compiled.report()
    if as_json:
        nodes = {name: getattr(report.nodes, name) for name in ("scheduled", "fallback", "routine", "host", "eager")}
        shown = {"nodes": nodes, "kernels": report.kernels, "modules": report.modules, "seconds": report.seconds}
        print_json({"model": model, "inputs": describe_inputs(compiled), **shown, "saved": output})
        return
    for name, text in describe_inputs(compiled).items():
        click.echo(f"input    {name}: {text}")
    click.echo(str(report))
    if output is not None:
        click.echo(f"saved    {output} ({output.stat().st_size / 1e6:.1f} MB)")


@click.command("run")
@model_argument
@inputs_option
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder for output0.npy, …")
@target_option
@settings_option
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@json_option
def run_model(
    model: Path,
    inputs: Sequence[str],
    output: Path | None,
    target: str,
    settings: Sequence[str],
    seed: int,
    as_json: bool,
) -> None:
    """Run MODEL and say what comes out. MODEL may be what `hidet compile -o` saved.

    A saved model (.hidet) is native code that runs with all your rights: run only what you trust (docs/security.md).
    """
    import numpy

    compiled = compiled_from(model, target, settings)
    results = compiled.call_on_inputs(arguments_from(compiled, inputs, seed))
    arrays = [numpy.asarray(array) for array in (results if isinstance(results, tuple) else (results,))]
    files: list[Path | None] = [None] * len(arrays)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        files = [output / f"output{number}.npy" for number in range(len(arrays))]
        for file, array in zip(files, arrays, strict=True):
            assert file is not None
            numpy.save(file, array)
    facts = [_facts(array) for array in arrays]
    if as_json:
        print_json({"model": model, "outputs": [{**f, "file": p} for f, p in zip(facts, files, strict=True)]})
        return
    for number, (fact, file) in enumerate(zip(facts, files, strict=True)):
        numbers = ", ".join(f"{name} {fact[name]:.6g}" for name in ("least", "mean", "greatest") if name in fact)
        text = f"{fact['dtype']}{fact['shape']}" + (f": {numbers}" if numbers else "")
        click.echo(f"output {number}  {text}" + ("" if file is None else f"  -> {file}"))


def compiled_from(model: Path, target: str, settings: Sequence[str]) -> CompiledGraph:
    """A compiled graph from a model's file, or one that was saved."""
    import hidet

    if model.suffix == ARTIFACT_SUFFIX:
        if settings or target != "auto":
            raise click.UsageError(f"{model} is compiled already: --target and --option do not apply")
        return hidet.load(model)
    return hidet.compile(str(model), target=target, options=_settings(settings))


def arguments_from(compiled: CompiledGraph, given: Sequence[str], seed: int = 0) -> list[Any]:
    """Arrays for a compiled graph's inputs, from what `--input` says. Inputs of known shape need none: they are random.

    UsageError names an input that is unknown, given twice or missing.
    """
    import numpy

    slots = {slot.name: slot for slot in compiled.bundle.program.inputs}
    values = parse_inputs(given, list(slots))
    generator = numpy.random.default_rng(seed)
    descriptions = describe_inputs(compiled)
    arguments: list[Any] = []
    for name, slot in slots.items():
        wanted = values.get(name)
        if isinstance(wanted, numpy.ndarray):
            arguments.append(wanted)
        elif slot.tensor is None:
            if wanted is None or len(wanted) != 1:
                raise click.UsageError(f"input {name} is an integer: --input {name}=4")
            arguments.append(wanted[0])
        else:
            shape = slot.tensor.shape if wanted is None else wanted
            known = [extent for extent in shape if isinstance(extent, int)]
            if len(known) < len(shape):
                raise click.UsageError(f"input {name} is {descriptions[name]}: give its shape, --input {name}=1x8")
            arguments.append(random_array(generator, known, slot.tensor.dtype.numpy()))
    return arguments


def describe_inputs(compiled: CompiledGraph) -> Mapping[str, str]:
    """Type and shape of each input, as people read it."""
    texts = {}
    for slot in compiled.bundle.program.inputs:
        if slot.tensor is None:
            texts[slot.name] = "integer"
        else:
            texts[slot.name] = f"{slot.tensor.dtype.short}[{', '.join(map(str, slot.tensor.shape))}]"
    return texts


def _settings(given: Sequence[str]) -> dict[str, Any]:
    """Options from NAME=VALUE: JSON values (2, true, null), anything else is text."""
    options: dict[str, Any] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"--option {text}: expected NAME=VALUE")
        try:
            options[name] = json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    return options


def _facts(array: Any) -> dict[str, Any]:
    """Shape, type and, for numbers, least, mean and greatest."""
    facts: dict[str, Any] = {"shape": list(array.shape), "dtype": array.dtype.name}
    if array.size and array.dtype.kind in "biufV" and array.dtype.name != "object":
        numbers = array.astype("float64")
        facts.update(least=float(numbers.min()), mean=float(numbers.mean()), greatest=float(numbers.max()))
    return facts
