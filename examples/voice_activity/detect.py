"""Find speech in a sound with silero-vad, an ONNX model with trained weights, compiled by hidet.

    python detect.py
    python detect.py --sound recording.npy          16 kHz, one channel, float32 in [-1, 1]

The package silero-vad carries the model (`pip install --no-deps silero-vad`). Without a recording, the sound is made
here: noise, and vowels whose pitch and formants move as in speech. Every window of 32 ms is one call of the model,
which keeps its state in a tensor that goes in and comes out.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import hidet.onnx

RATE = 16_000
WINDOW, CONTEXT = 512, 64
BARS = " ▁▂▃▄▅▆▇█"
LARGEST_DIFFERENCE = 1e-4
"""Probabilities are at most 1; a difference above this means that something is wrong."""

Array = np.ndarray[Any, np.dtype[Any]]
Step = Callable[[dict[str, Array]], Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Listened:
    """What one system made of a sound. probabilities: of speech, one a window. seconds: of each call but the first."""

    name: str
    probabilities: Array
    seconds: Sequence[float]


@click.command()
@click.option("--sound", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A .npy file, 16 kHz.")
@click.option("--threads", default=1, show_default=True)
def main(sound: Path | None, threads: int) -> None:
    """Find speech in a sound, with hidet and with ONNX Runtime where it is installed."""
    console = Console(width=100)
    samples = made_sound() if sound is None else np.load(sound).astype(np.float32)
    path = model_path()

    start = time.perf_counter()
    runner = hidet.onnx.OnnxRunner(path, options={"threads": threads})
    found = [listen("hidet", runner, samples)]
    console.print(
        f"silero-vad on {len(samples) / RATE:.1f} s of sound; compiled and run in {time.perf_counter() - start:.1f} s"
    )
    peer = onnxruntime_step(path, threads)
    if peer is not None:
        found.append(listen("ONNX Runtime", peer, samples))

    console.print("\n[bold]Probability of speech[/bold], a column every 32 ms")
    for line in timeline(found[0].probabilities, console.width):
        console.print(line, highlight=False)
    console.print()
    console.print(latencies(found))
    for other in found[1:]:
        difference = float(np.abs(found[0].probabilities - other.probabilities).max())
        console.print(f"largest difference from {other.name}: {difference:.1e}")
        if not difference <= LARGEST_DIFFERENCE:
            raise click.ClickException("hidet and ONNX Runtime hear different things")
    if peer is None:
        console.print("ONNX Runtime is not installed, so nothing is compared: pip install onnxruntime")


def model_path() -> Path:
    """The model's file. ClickException when the package that carries it is not installed."""
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or spec.submodule_search_locations is None:
        raise click.ClickException("the model is not installed: pip install --no-deps silero-vad")
    return Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.onnx"


def made_sound(seconds: float = 6.0) -> Array:
    """Noise, with two stretches of moving vowels in it."""
    random = np.random.default_rng(0)
    moments = np.arange(int(seconds * RATE)) / RATE
    pitch = 120 + 25 * np.sin(2 * np.pi * 1.3 * moments) + 10 * np.sin(2 * np.pi * 4.1 * moments)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    formants = [
        (500 + 250 * np.sin(2 * np.pi * 2.1 * moments), 90.0),
        (1500 + 500 * np.sin(2 * np.pi * 1.7 * moments + 1), 120.0),
        (2500 + 200 * np.sin(2 * np.pi * 0.9 * moments), 180.0),
    ]
    voice = np.zeros_like(moments)
    for harmonic in range(1, 30):
        frequency = harmonic * pitch
        strength = sum(1 / (1 + ((frequency - center) / width) ** 2) for center, width in formants)
        voice += strength * np.sin(harmonic * phase) / harmonic**0.3
    syllables = np.clip(np.sin(2 * np.pi * 3.3 * moments), 0, 1) ** 0.5
    speaks = ((moments > 1.0) & (moments < 2.8)) | ((moments > 3.8) & (moments < 5.2))
    voice *= syllables * speaks
    return (0.25 * voice / np.abs(voice).max() + 0.003 * random.standard_normal(len(moments))).astype(np.float32)


def listen(name: str, step: Step, samples: Array) -> Listened:
    """Run the model over a sound, window by window."""
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros((1, CONTEXT), np.float32)
    rate = np.array(RATE, np.int64)
    probabilities, seconds = [], []
    for begin in range(0, len(samples) - WINDOW + 1, WINDOW):
        heard = np.concatenate([context, samples[None, begin : begin + WINDOW]], axis=1)
        start = time.perf_counter()
        probability, state = step({"input": heard, "state": state, "sr": rate})
        seconds.append(time.perf_counter() - start)
        probabilities.append(float(np.asarray(probability).item()))
        context = heard[:, -CONTEXT:]
    return Listened(name, np.array(probabilities), seconds[1:])


def onnxruntime_step(path: Path, threads: int) -> Step | None:
    """The same model in ONNX Runtime; None where that is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda arrays: session.run(None, arrays)


def timeline(probabilities: Array, width: int) -> list[str]:
    """Rows of bars, with the second at which each begins."""
    bars = "".join(BARS[round(float(p) * (len(BARS) - 1))] for p in probabilities)
    columns = width - 8
    return [f"{at * WINDOW / RATE:5.1f} s {bars[at : at + columns]}" for at in range(0, len(bars), columns)]


def latencies(found: Sequence[Listened]) -> Table:
    """Microseconds of a call, by system."""
    table = Table()
    table.add_column("system")
    for column in ("median us a window", "fastest us", "times faster than the sound"):
        table.add_column(column, justify="right")
    for system in found:
        median = statistics.median(system.seconds)
        table.add_row(
            system.name, f"{median * 1e6:.0f}", f"{min(system.seconds) * 1e6:.0f}", f"{WINDOW / RATE / median:.0f}"
        )
    return table


if __name__ == "__main__":
    main()
