"""Name the notes of a sound with basic-pitch, a TensorFlow model with trained weights, compiled by hidet.

    python listen.py
    python listen.py --sound recording.npy          22050 Hz, one channel, float32 in [-1, 1]
    python listen.py --lite                         the package's .tflite file: TensorFlow need not be installed

The package basic-pitch carries the model, a SavedModel of Keras 2 (`pip install --no-deps basic-pitch`). Without a
recording, the sound is a chord that is made here. Two seconds of sound are one call of the model, which takes them
apart into frequencies by convolutions before it looks for notes.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import hidet.tensorflow

RATE = 22_050
WINDOW = 43_844
LOWEST = 21
"""The model's first note as MIDI has it, the A at the left end of a piano."""
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")

Array = np.ndarray[Any, np.dtype[Any]]


@click.command()
@click.option("--sound", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A .npy file, 22050 Hz.")
@click.option("--count", default=3, show_default=True, help="How many notes to name.")
@click.option("--lite", is_flag=True, help="Take the model's TFLite file, which needs no TensorFlow.")
def main(sound: Path | None, count: int, lite: bool) -> None:
    """Name the notes of a sound."""
    console = Console(width=100)
    samples = chord((57, 61, 64)) if sound is None else np.load(sound).astype(np.float32)
    start = time.perf_counter()
    compiled = hidet.tensorflow.compile(model_path().with_suffix(".tflite") if lite else model_path())
    console.print(f"basic-pitch compiled in {time.perf_counter() - start:.1f} s, without TensorFlow from here on")
    start = time.perf_counter()
    heard = compiled(windows(samples))
    console.print(f"{len(samples) / RATE:.1f} s of sound heard in {time.perf_counter() - start:.2f} s")
    table = Table("note", "MIDI", "certainty")
    for number, certainty in loudest(heard, count):
        table.add_row(f"{NAMES[number % 12]}{number // 12 - 1}", str(number), f"{certainty:.2f}")
    console.print(table)


def model_path() -> Path:
    """The model in the installed package, which is not imported: it needs more than the model does."""
    found = importlib.util.find_spec("basic_pitch")
    if found is None or found.origin is None:
        raise click.ClickException("basic-pitch is not installed: pip install --no-deps basic-pitch")
    return Path(found.origin).parent / "saved_models" / "icassp_2022" / "nmp"


def chord(notes: Sequence[int]) -> Array:
    """Two seconds of these notes (MIDI numbers), each a tone with overtones that fades."""
    at = np.arange(WINDOW) / RATE
    sound = np.zeros(WINDOW)
    for note in notes:
        pitch = 440 * 2 ** ((note - 69) / 12)
        sound += sum(np.sin(2 * np.pi * pitch * n * at) / n**2 for n in range(1, 6)) * np.exp(-at)
    return (0.3 * sound / len(notes)).astype(np.float32)


def windows(samples: Array) -> Array:
    """The sound in parts of two seconds [parts, WINDOW, 1], the last one filled up with silence."""
    parts = -(-len(samples) // WINDOW)
    padded = np.zeros(parts * WINDOW, np.float32)
    padded[: len(samples)] = samples
    return padded.reshape(parts, WINDOW, 1)


def loudest(heard: Mapping[str, Array], count: int) -> list[tuple[int, float]]:
    """The notes that are surest on average, with how sure the model is of them."""
    certainty = np.asarray(heard["note"]).mean(axis=(0, 1))
    best = np.argsort(certainty)[::-1][:count]
    return [(LOWEST + int(place), float(certainty[place])) for place in best]


if __name__ == "__main__":
    main()
