"""`hidet compile` and `hidet run`: a model in a file, compiled and called from the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy

import hidet
from hidet.cli.inputs import (
    Given,
    inputs_option,
    parse_inputs,
    parse_shapes,
    parse_values,
    place_inputs,
    random_array,
    shapes_option,
    values_option,
)
from hidet.cli.output import json_option, print_json
from hidet.errors import ShapeNeeded, ValueNeeded

if TYPE_CHECKING:
    from hidet.runtime.compiled import CompiledGraph
    from hidet.runtime.program import InputSlot

ARTIFACT_SUFFIX = ".hidet"

model_argument = click.argument("model", type=click.Path(exists=True, path_type=Path))
target_option = click.option("--target", default="auto", show_default=True, help="What to compile for.")
settings_option = click.option(
    "--option", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the compilation, such as threads=2."
)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What a user says of a model's inputs.

    shapes: in place of what the model says. values: built into the compiled model. named, unnamed: what `--input` says.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, Given] = field(default_factory=dict)
    unnamed: Sequence[Given] = ()


def request_from(shapes: Sequence[str], values: Sequence[str], inputs: Sequence[str] = ()) -> Request:
    """From the texts of the options. UsageError for one that cannot be read."""
    return Request(parse_shapes(shapes), parse_values(values), *parse_inputs(inputs))


@dataclass(frozen=True, slots=True, eq=False)
class CompiledModel:
    """A compiled graph, and the inputs of the model that are built into it, by name."""

    compiled: CompiledGraph
    bound: Mapping[str, Any]


@click.command("compile")
@model_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Save what was compiled there.")
@shapes_option
@values_option
@target_option
@settings_option
@json_option
def compile_model(
    model: Path,
    output: Path | None,
    shapes: Sequence[str],
    values: Sequence[str],
    target: str,
    settings: Sequence[str],
    as_json: bool,
) -> None:
    """Compile MODEL and say what became of it."""
    made = compiled_from(model, target, settings, request_from(shapes, values))
    compiled = made.compiled
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
    for name in made.bound:
        click.echo(f"built in {name}")
    click.echo(str(report))
    if output is not None:
        click.echo(f"saved    {output} ({output.stat().st_size / 1e6:.1f} MB)")


@click.command("run")
@model_argument
@inputs_option
@shapes_option
@values_option
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder for output0.npy, …")
@target_option
@settings_option
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@json_option
def run_model(
    model: Path,
    inputs: Sequence[str],
    shapes: Sequence[str],
    values: Sequence[str],
    output: Path | None,
    target: str,
    settings: Sequence[str],
    seed: int,
    as_json: bool,
) -> None:
    """Run MODEL and say what comes out. MODEL may be what `hidet compile -o` saved.

    A saved model (.hidet) is native code that runs with all your rights: run only what you trust (docs/security.md).
    """
    request = request_from(shapes, values, inputs)
    made = compiled_from(model, target, settings, request)
    arrays = run_once(made.compiled, list(arguments_from(made, request, seed).values()))
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


def run_once(compiled: CompiledGraph, arguments: Sequence[Any]) -> list[Any]:
    """The outputs as numpy arrays."""
    results = compiled.call_on_inputs(arguments)
    return [numpy.asarray(array) for array in (results if isinstance(results, tuple) else (results,))]


def compiled_from(
    model: Path, target: str, settings: Sequence[str], request: Request, options: Mapping[str, Any] | None = None
) -> CompiledModel:
    """A compiled graph from a model's file, or one that was saved.

    Inputs whose elements have to be known are built in where the user gave them; shapes that the model leaves open
    altogether are those that he gave. options: of the compilation, besides `settings`.
    """
    if model.suffix == ARTIFACT_SUFFIX:
        chosen = {"--target": target != "auto", "--option": settings, "--shape": request.shapes}
        used = [name for name, given in {**chosen, "--value": request.values}.items() if given]
        if used:
            raise click.UsageError(f"{model} is compiled already: {', '.join(used)} do not apply")
        return CompiledModel(hidet.load(model), {})
    shapes, values = dict(request.shapes), dict(request.values)
    chosen_options = {**(options or {}), **parse_settings(settings)}
    while True:
        try:
            compiled = hidet.compile(str(model), target=target, options=chosen_options, shapes=shapes, values=values)
            return CompiledModel(compiled, values)
        except ValueNeeded as error:
            known = _known_values((*error.inputs, *error.deciding), request, values)
            sizes = _known_shapes(error.shapes, request, shapes)
            if not known and not sizes:
                raise
            values.update(known)
            shapes.update(sizes)
        except ShapeNeeded as error:
            sizes = _known_shapes((error.input,), request, shapes)
            if not sizes:
                raise
            shapes.update(sizes)


def _known_values(names: Sequence[str], request: Request, done: Mapping[str, Any]) -> dict[str, Any]:
    """Elements that the user gave for those of these inputs which are not in `done`."""
    given = {name: request.named[name].value for name in names if name in request.named and name not in done}
    return {name: value for name, value in given.items() if value is not None}


def _known_shapes(
    names: Sequence[str], request: Request, done: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """As `_known_values`, shapes."""
    given = {name: request.named[name] for name in names if name in request.named and name not in done}
    shapes = {name: entry.shape if entry.array is None else entry.array.shape for name, entry in given.items()}
    return {name: shape for name, shape in shapes.items() if shape is not None}


def arguments_from(model: CompiledModel, request: Request, seed: int = 0) -> dict[str, Any]:
    """Arrays for a compiled graph's inputs by name, in order. Inputs of known shape need none: they are random.

    UsageError names an input that is unknown, given twice or missing, and a value that it cannot have.
    """
    slots = {slot.name: slot for slot in model.compiled.bundle.program.inputs}
    given = place_inputs(list(slots), request.named, request.unnamed, list(model.bound))
    shapes = {name: request.shapes.get(name) for name in slots}
    generator = numpy.random.default_rng(seed)
    descriptions = describe_inputs(model.compiled)
    return {
        name: _argument(slot, given.get(name), shapes[name], generator, descriptions[name])
        for name, slot in slots.items()
    }


def _argument(
    slot: InputSlot, given: Given | None, shape: Sequence[int] | None, generator: Any, description: str
) -> Any:
    """What an input is called with; `shape` is what `--shape` says."""
    name, tensor = slot.name, slot.tensor
    if given is not None and given.array is not None:
        return given.array
    if tensor is None:
        if given is None or not isinstance(given.number, int):
            raise click.UsageError(f"input {name} is an integer: --input {name}=4")
        return given.number
    # "4" is the number where a shape would say nothing that is not known.
    says_nothing = all(extent == 1 for extent in tensor.shape)
    if given is not None and given.number is not None and (given.shape is None or says_nothing):
        wanted = numpy.asarray(given.number)
        dtype = tensor.dtype.numpy()
        try:
            array = wanted.astype(dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise click.UsageError(f"input {name}: {given.text} is no {description}: {error}") from error
        if wanted.dtype.kind not in "biuf" or (array.dtype.kind in "biu" and not numpy.array_equal(array, wanted)):
            raise click.UsageError(f"input {name}: {given.text} is no {description}")
        return array.reshape(tensor.shape) if says_nothing and array.size == 1 else array
    wanted_shape = shape if given is None or given.shape is None else given.shape
    extents: Sequence[Any] = tensor.shape if wanted_shape is None else wanted_shape
    known = [extent for extent in extents if isinstance(extent, int)]
    if len(known) < len(extents):
        raise click.UsageError(f"input {name} is {description}: give its shape, --input {name}=1x8")
    return random_array(generator, known, tensor.dtype.numpy())


def describe_inputs(compiled: CompiledGraph) -> Mapping[str, str]:
    """Type and shape of each input, as people read it."""
    texts = {}
    for slot in compiled.bundle.program.inputs:
        if slot.tensor is None:
            texts[slot.name] = "integer"
        else:
            texts[slot.name] = f"{slot.tensor.dtype.short}[{', '.join(map(str, slot.tensor.shape))}]"
    return texts


def parse_settings(given: Sequence[str]) -> dict[str, Any]:
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
