"""Models of TensorFlow and jax on a device of a machine that has neither.

python -m tests.models.frontends export DIR                          where TensorFlow or jax is installed
python -m tests.models.frontends check DIR --device cuda --jobs 8    where hidet is, and nothing else
python -m tests.models.frontends check DIR --device cuda:sm_90a --compile-only    without a GPU

The first writes a file for every model in f32 and in f16: an imported graph (TensorFlow) or an export of jax, with
weights of which f16 holds each, inputs of three seeds and of batches of several sizes, the framework's own results and
those in float64. The models in f16 compute in f16 from end to end, as their framework does it. The second compiles them
and says whether they are right, by `hidet.testing.numerics`, and whether a node runs on the host.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

import hidet
import hidet.stablehlo
from hidet.graph.parser import parse_graph
from hidet.graph.printer import constant_table, print_graph
from hidet.plugins.host import load_registry
from hidet.testing.numerics import Sample, Verdict, check_output

from .apart import Died, run_apart
from .compile_reports import NodeCounts, sum_counts
from .framework_model import FrameworkModel
from .jax_models import JAX_MODELS
from .keras_models import KERAS_MODELS

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Sequence[Array]

DTYPES: Mapping[str, str] = {"f32": "float32", "f16": "float16"}
BATCHES = (1, 3, 2)
"""Of the three seeds."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model with what it has to compute.

    graph: the text of an imported graph, whose arrays are constants; "" where `program` is an export of jax.
    samples: for each seed the inputs, the framework's results, and those in float64.
    """

    graph: str
    program: bytes
    constants: Mapping[str, Array]
    samples: Sequence[tuple[Arrays, Arrays, Arrays]]


def write_model(path: Path, model: StoredModel) -> None:
    """Write a model into one file, a compressed archive of arrays."""
    arrays = {f"constant {name}": array for name, array in model.constants.items()}
    for seed, parts in enumerate(model.samples):
        for part, group in zip(("input", "eager", "reference"), parts, strict=True):
            arrays |= {f"{part} {seed} {number}": array for number, array in enumerate(group)}
    texts = {"graph": model.graph.encode(), "program": model.program}
    np.savez_compressed(path, **arrays, **{name: np.frombuffer(text, np.uint8) for name, text in texts.items()})


def read_model(path: Path) -> StoredModel:
    """The model that `write_model` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays.files}

    def group(part: str, seed: int) -> Arrays:
        names = [name for name in found if name.startswith(f"{part} {seed} ")]
        return [found[name] for name in sorted(names, key=lambda name: int(name.split()[-1]))]

    seeds = sorted({int(name.split()[1]) for name in found if name.startswith("eager ")})
    return StoredModel(
        found["graph"].tobytes().decode(),
        found["program"].tobytes(),
        {name.partition(" ")[2]: array for name, array in found.items() if name.startswith("constant ")},
        [(group("input", seed), group("eager", seed), group("reference", seed)) for seed in seeds],
    )


# --- export ----------------------------------------------------------------------------------------------------------


def _keras_model(entry: FrameworkModel, dtype: str) -> StoredModel:
    """Of a Keras model or tf.Module: once in `dtype`, once in float64 with the same weights."""
    import tensorflow as tf

    import hidet.tensorflow

    keras = tf.keras

    def built(floating: str) -> Any:
        keras.utils.set_random_seed(7)
        keras.config.set_floatx(floating)
        keras.config.set_dtype_policy(floating)
        return entry.build()

    try:
        wide, narrow = built("float64"), built(dtype)
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
    if isinstance(wide, keras.Model):
        weights = _varied({weight.path: weight.numpy() for weight in wide.weights})
        for model in (wide, narrow):
            model.set_weights(list(weights.values()))

    def call(model: Any, *inputs: Any) -> Any:
        if isinstance(model, keras.Model):
            return model(list(inputs) if len(inputs) > 1 else inputs[0], training=False)
        return model(*inputs)

    batches = [entry.inputs(np.random.default_rng(seed), batch) for seed, batch in enumerate(BATCHES)]
    specs = [tf.TensorSpec((None, *array.shape[1:]) if array.ndim else (), array.dtype) for array in batches[0]]
    graph = hidet.tensorflow.from_tensorflow(tf.function(partial(call, narrow)), specs).graph

    def results(model: Any, inputs: Arrays) -> Arrays:
        return [np.asarray(result) for result in tf.nest.flatten(call(model, *map(tf.constant, inputs)))]

    samples = [(inputs, results(narrow, inputs), results(wide, inputs)) for inputs in batches]
    return StoredModel(print_graph(graph), b"", constant_table(graph), samples)


def _jax_model(entry: FrameworkModel, dtype: str) -> StoredModel:
    import jax
    from jax import export

    function, params = entry.build()
    rounded = jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, np.float16), params)

    def cast(tree: Any, floating: str) -> Any:
        return jax.tree_util.tree_map(lambda leaf: leaf.astype(floating) if leaf.dtype.kind == "f" else leaf, tree)

    narrow = cast(rounded, dtype)
    batches = [entry.inputs(np.random.default_rng(seed), batch) for seed, batch in enumerate(BATCHES)]
    (open_batch,) = export.symbolic_shape("b")
    specs = [jax.ShapeDtypeStruct((open_batch, *array.shape[1:]), array.dtype) for array in cast(batches[0], dtype)]
    exported = export.export(jax.jit(partial(function, narrow)), platforms=("cpu",))(*specs)

    def results(weights: Any, inputs: Any) -> Arrays:
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(jax.jit(function)(weights, *inputs))]

    samples = []
    for inputs in batches:
        eager = results(narrow, cast(inputs, dtype))
        with jax.enable_x64(True):
            reference = results(cast(rounded, "float64"), cast(inputs, "float64"))
        samples.append((cast(inputs, dtype), eager, reference))
    return StoredModel("", bytes(exported.serialize()), {}, samples)


def _varied(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights of which f16 holds each. Factors and statistics of norms, and biases, begin as ones and zeros, which
    hides what they do."""
    rng = np.random.default_rng(1)
    made = {}
    for path, value in weights.items():
        name = path.rpartition("/")[2]
        if name in ("gamma", "moving_variance"):
            value = 1 + 0.2 * rng.random(value.shape)
        elif name in ("beta", "bias", "moving_mean"):
            value = 0.1 * rng.standard_normal(value.shape)
        made[path] = value.astype(np.float16).astype(np.float32) if value.dtype.kind == "f" else value
    return made


# --- check -----------------------------------------------------------------------------------------------------------


_NONE = NodeCounts()


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a file. verdicts: of its results, none where it was not run. failure: why there is no report."""

    name: str
    counts: NodeCounts = _NONE
    verdicts: tuple[Verdict, ...] = ()
    seconds: float = 0.0
    failure: str | None = None

    @property
    def problems(self) -> list[str]:
        """What is against the rules, each in a line."""
        if self.failure is not None:
            return [self.failure]
        wrong = [str(verdict) for verdict in self.verdicts if not verdict.correct]
        return wrong + ([self.counts.complaint] if self.counts.complaint else [])

    @property
    def worst(self) -> float:
        """The largest error as a part of what is allowed."""
        pairs = [(v.rms, v.rms_limit) for v in self.verdicts] + [(v.peak, v.peak_limit) for v in self.verdicts]
        return max((error / limit for error, limit in pairs if limit), default=0.0)


def check_file(path: Path, target: str, compile_only: bool) -> Report:
    """Compile the model in a file for a target, and compare what it computes there."""
    model, start = read_model(path), time.perf_counter()
    if model.graph:
        compiled = hidet.compile(parse_graph(model.graph, load_registry().operators, model.constants), target=target)
    else:
        compiled = hidet.stablehlo.compile(model.program, target=target)
    seconds, counts = time.perf_counter() - start, sum_counts([compiled.report()])
    if compile_only:
        return Report(path.stem, counts, seconds=seconds)
    columns: list[list[Sample]] = [[] for _ in model.samples[0][1]]
    for inputs, eager, reference in model.samples:
        results = compiled.call_on_inputs(inputs)
        results = results if isinstance(results, tuple) else (results,)
        for column, row in zip(columns, zip(results, eager, reference, strict=True), strict=True):
            column.append(Sample(*row))
    verdicts = tuple(check_output(f"result {number}", samples) for number, samples in enumerate(columns))
    return Report(path.stem, counts, verdicts, seconds)


def _report(target: str, compile_only: bool, path: Path) -> Report:
    warnings.simplefilter("ignore")
    try:
        return check_file(path, target, compile_only)
    except Exception as error:  # noqa: BLE001 - a model that fails is a line of the output, not its end
        first_line = next(iter(str(error).strip().splitlines()), "")
        return Report(path.stem, failure=f"{type(error).__name__}: {first_line[:300]}")


def check_files(paths: Sequence[Path], target: str, compile_only: bool, jobs: int) -> Iterator[Report]:
    """A report of each file as it comes. jobs: processes at once; 1 works in this one."""
    work = partial(_report, target, compile_only)
    if jobs == 1:
        yield from map(work, paths)
        return
    for path, result in run_apart(work, paths, jobs, seconds=_MOST_SECONDS, preload=(__name__,)):
        yield Report(path.stem, failure=f"no result: {result}") if isinstance(result, Died) else result


_MOST_SECONDS = 300.0
_LINE = "{:24} {:8} {:>11} {:>6} {:>5} {:>8} {:>5} {:>6} {:>6}"


def _line(report: Report) -> str:
    counts = report.counts
    nodes = (counts.scheduled, counts.fallback_nest, counts.routine, counts.host, counts.eager)
    word = "WRONG" if report.problems else "right" if report.verdicts else "compiled"
    line = _LINE.format(report.name, word, f"{report.worst:.2f}", *nodes, f"{report.seconds:.1f}")
    names = [f"    {name} x{count}" for name, count in (counts.names or {}).items()]
    return "\n".join([line, *(f"    {problem}" for problem in report.problems), *names])


@click.group()
def main() -> None:
    """Models of TensorFlow and jax on a device."""


@main.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--only", default="", help="A regular expression of names.")
def export(folder: Path, only: str) -> None:
    """Write every model of the frameworks that are installed, in f32 and f16."""
    folder.mkdir(parents=True, exist_ok=True)
    for models, made in ((KERAS_MODELS, _keras_model), (JAX_MODELS, _jax_model)):
        for name, entry in models.items():
            if re.search(only, name):
                for short, dtype in DTYPES.items():
                    path = folder / f"{name.replace(' ', '-')}-{short}.npz"
                    write_model(path, made(entry, dtype))
                    click.echo(f"{path}: {path.stat().st_size >> 10} KiB")


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--device", default="cuda", show_default=True, help="A target of hidet.compile.")
@click.option("--only", default="", help="A regular expression of names of files.")
@click.option("--compile-only", is_flag=True, help="Run nothing.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes at once; 1: this one.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Where all figures are written.")
def check(folder: Path, device: str, only: str, compile_only: bool, jobs: int, file: Path | None) -> None:
    """Compile every model of a folder, print a line each; the exit status is 1 when one is not right."""
    paths = sorted(path for path in folder.glob("*.npz") if re.search(only, path.stem))
    click.echo(_LINE.format("model", "", "error/limit", "nodes", "nest", "routine", "host", "eager", "s"))
    start, reports = time.perf_counter(), []
    for report in check_files(paths, device, compile_only, jobs):
        reports.append(report)
        click.echo(_line(report))
    right = sum(not report.problems for report in reports)
    word = "compiled" if compile_only else "right"
    click.echo(f"{right} of {len(paths)} {word} on {device} in {time.perf_counter() - start:.0f} s")
    if file is not None:
        rows = [{"name": r.name, "problems": r.problems, "worst": r.worst, "nodes": str(r.counts)} for r in reports]
        file.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    sys.exit(0 if paths and right == len(paths) else 1)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
