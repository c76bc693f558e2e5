"""Measure Keras models on the CPU: hidet beside TensorFlow (oneDNN), XLA and ONNX Runtime, batch 1, one thread.

python benchmarks/tensorflow_models.py                     six models
python benchmarks/tensorflow_models.py --models lstm,bert --json result.json
python benchmarks/tensorflow_models.py --check             whether all models are right from every source, no times

ONNX Runtime has a column where `tf2onnx` is installed, and a figure where it converts the model.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import hidet
import hidet.tensorflow
from benchmarks.options import names_from, report_console
from benchmarks.tensorflow_zoo import MEASURED, ZOO, ZooModel
from hidet.cli.timing import Latency, measure_alternately

SYSTEMS = ("hidet", "tensorflow", "xla", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Row:
    """What one model takes. differences: the largest of any output from TensorFlow's, relative to the largest value.
    reasons: why a system has no figure."""

    model: str
    what: str
    latencies: Mapping[str, Latency]
    differences: Mapping[str, float]
    reasons: Mapping[str, str]

    @property
    def ratio(self) -> float:
        """hidet's median over that of the best other one."""
        peers = [latency.median for system, latency in self.latencies.items() if system != "hidet"]
        return self.latencies["hidet"].median / min(peers)


@click.command()
@click.option("--models", callback=names_from(tuple(ZOO)), default=",".join(MEASURED), show_default=True)
@click.option("--seconds", default=1.0, show_default=True, help="Seconds a system's turn takes; there are three turns.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
@click.option("--check", is_flag=True, help="Compare all models from every source with TensorFlow; measure nothing.")
def main(models: tuple[str, ...], seconds: float, json_path: Path | None, check: bool) -> None:
    """Measure Keras models on the CPU: hidet beside TensorFlow, XLA and ONNX Runtime."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    console, progress = report_console(), Console(stderr=True)
    if check:
        found = [_check(console, name, ZOO[name]) for name in ZOO]
        console.print(f"{found.count(True)} of {len(found)} models are right")
        sys.exit(0 if all(found) else 1)
    load = os.getloadavg()[0]
    console.print(f"TensorFlow {tf.__version__}, one thread, batch 1; load of the machine before: {load:.1f}")
    rows = []
    for name in models:
        with progress.status(name):
            rows.append(_measure(name, ZOO[name], seconds))
    _print(console, rows)
    if json_path is not None:
        text = json.dumps({"load": load, "tensorflow": tf.__version__, "rows": [asdict(row) for row in rows]}, indent=1)
        json_path.write_text(text, encoding="utf-8")
        console.print(f"written: {json_path}")


# --- times -----------------------------------------------------------------------------------------------------------


def _measure(name: str, entry: ZooModel, seconds: float) -> Row:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(7)
    model, arrays = entry.build(), entry.inputs(np.random.default_rng(0), 1)
    tensors = tf.nest.map_structure(tf.constant, arrays)
    made = hidet.tensorflow.compile(model, options={"threads": 1})
    eager = tf.function(lambda given: model(given, training=False))
    fused = tf.function(lambda given: model(given, training=False), jit_compile=True)
    runs: dict[str, Callable[[], Any]] = {}
    reasons: dict[str, str] = {}
    outputs: dict[str, list[Any]] = {}
    attempts: dict[str, Callable[[], Callable[[], Any]]] = {
        "hidet": lambda: lambda: made(arrays),
        "tensorflow": lambda: lambda: eager(tensors),
        "xla": lambda: lambda: fused(tensors),
        "onnxruntime": lambda: _onnx_run(model, arrays),
    }
    for system, attempt in attempts.items():
        try:
            run = attempt()
            outputs[system] = [np.asarray(result) for result in tf.nest.flatten(run())]
            runs[system] = run
        except Exception as error:  # noqa: BLE001 - whatever a peer cannot do is a reason
            reasons[system] = f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
    differences = {system: _difference(found, outputs["tensorflow"]) for system, found in outputs.items()}
    return Row(name, entry.what, measure_alternately(runs, seconds, 3), differences, reasons)


def _onnx_run(model: Any, arrays: Any) -> Callable[[], Any]:
    """The model in ONNX Runtime. Raises what the conversion raises."""
    import onnxruntime
    import tensorflow as tf
    import tf2onnx

    given = arrays if isinstance(arrays, dict) else {"x": arrays}
    specs = [tf.TensorSpec(array.shape, array.dtype, name) for name, array in given.items()]

    def call(*tensors: Any) -> Any:
        return model(dict(zip(given, tensors, strict=True)) if isinstance(arrays, dict) else tensors[0], training=False)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto, _ = tf2onnx.convert.from_function(
            tf.function(call, input_signature=specs), input_signature=specs, opset=17
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {entry.name: array for entry, array in zip(session.get_inputs(), given.values(), strict=True)}
    return lambda: session.run(None, feeds)


def _difference(found: list[Any], expected: list[Any]) -> float:
    pairs = zip(found, expected, strict=False)
    return max(
        float(np.max(np.abs(a.astype(float) - b), initial=0) / max(np.max(np.abs(b), initial=0), 1e-30))
        for a, b in pairs
    )


def _print(console: Console, rows: list[Row]) -> None:
    table = Table()
    for column in ("model", *SYSTEMS, "hidet / best other"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        cells = [f"{row.latencies[s].median * 1e3:.2f}" if s in row.latencies else "-" for s in SYSTEMS]
        table.add_row(f"{row.model} ({row.what})", *cells, f"{row.ratio:.2f}")
    table.add_section()
    means = []
    for system in SYSTEMS:
        found = [row.latencies[system].median for row in rows if system in row.latencies]
        means.append(f"{_mean(found) * 1e3:.2f}" if len(found) == len(rows) else "-")
    table.add_row("geometric mean", *means, f"{_mean([row.ratio for row in rows]):.2f}")
    console.print("median ms")
    console.print(table)
    for row in rows:
        for system, reason in row.reasons.items():
            console.print(f"- {row.model}, {system}: {reason}", style="dim", markup=False)
    worst = max(row.differences["hidet"] for row in rows if "hidet" in row.differences)
    console.print(f"largest difference of hidet from TensorFlow, relative to the largest value: {worst:.1e}")


def _mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


# --- sources ---------------------------------------------------------------------------------------------------------


def _check(console: Console, name: str, entry: ZooModel) -> bool:
    """Compile a model live, from a SavedModel and from a .keras file, and run each in a process without TensorFlow."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(7)
    model = entry.build()
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(place)
        sources: dict[str, Callable[[], Any]] = {"live": lambda: model}
        if entry.is_saved:
            sources |= {
                "SavedModel": lambda: _exported(model, folder / "saved"),
                "keras": lambda: _kept(model, folder / "model.keras"),
            }
        verdicts = []
        for source, load in sources.items():
            try:
                compiled = hidet.compile(load(), options={"strict": True})
                compiled.save(folder / f"{source}.hidet")
                nodes = compiled.report().nodes
                verdicts.append(_verdict(folder, source, nodes.fallback, model, entry))
            except Exception as error:  # noqa: BLE001 - told, and counted as wrong
                verdicts.append(f"{source}: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
    wrong = [verdict for verdict in verdicts if verdict]
    console.print(f"{name}: {'; '.join(wrong) or 'right from ' + ', '.join(sources)}", markup=False)
    return not wrong


def _exported(model: Any, folder: Path) -> str:
    model.export(str(folder), verbose=False)
    return str(folder)


def _kept(model: Any, path: Path) -> str:
    model.save(path)
    return str(path)


_CHILD = """
import sys, pickle
sys.modules["tensorflow"] = sys.modules["keras"] = None
import hidet
compiled = hidet.load(sys.argv[1])
pickle.dump([compiled(given) for given in pickle.load(sys.stdin.buffer)], sys.stdout.buffer)
"""


def _verdict(folder: Path, source: str, fallback: int, model: Any, entry: ZooModel) -> str:
    """What is wrong with an artifact: nothing, or a text. Batches of one and of three."""
    import pickle

    import tensorflow as tf

    given = [entry.inputs(np.random.default_rng(batch), batch) for batch in (1, 3)]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder / f"{source}.hidet")],
        input=pickle.dumps(given),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        return f"{source}: {done.stderr.decode(errors='replace').strip().splitlines()[-1][:150]}"
    worst = 0.0
    for arrays, made in zip(given, pickle.loads(done.stdout), strict=True):
        expected = [np.asarray(value) for value in tf.nest.flatten(model(arrays, training=False))]
        worst = max(worst, _difference([np.asarray(value) for value in tf.nest.flatten(made)], expected))
    if worst > entry.limit:
        return f"{source}: {worst:.1e} away from TensorFlow"
    return f"{source}: {fallback} nodes on the nest" if fallback else ""


if __name__ == "__main__":
    main()
