"""Tune silero-vad, an ONNX model with trained weights, on this CPU, and compile it with what was found.

    python tune.py
    python tune.py --budget 2m --report report.html

The package silero-vad carries the model (`pip install --no-deps silero-vad`). Parameters of its schedules are measured
within a budget; those that are faster are kept in a file, which every later compilation reads.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

import hidet
from hidet.runtime.compiled import CompiledGraph
from hidet.tuning import LiveTable, TuneReport
from hidet.tuning.report_html import report_html

WINDOW = {"input": (1, 576), "state": (2, 1, 128)}
"""A window of 32 ms with what came before it, and what the model remembers."""

LARGEST_DIFFERENCE = 1e-5
"""Probabilities are at most 1; a difference above this means that something is wrong."""


@click.command()
@click.option("--budget", default="15s", show_default=True, help="Time for tuning.")
@click.option("--threads", default=1, show_default=True)
@click.option("--store", type=click.Path(dir_okay=False, path_type=Path), help="Keep what is found in this file.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write a page of HTML.")
def main(budget: str, threads: int, store: Path | None, report: Path | None) -> None:
    """Tune, show what changed, and compile the model with it and without."""
    path = model_path()
    with tempfile.TemporaryDirectory() as folder:
        kept = store or Path(folder) / "choices.sqlite"
        found = tuned(path, budget, threads, kept)
        click.echo(str(found))
        start = time.perf_counter()
        after = compiled(path, threads, str(kept))
        click.echo(f"\ncompiled with what the file has, in {time.perf_counter() - start:.1f} s")
        before = compiled(path, threads, "off")
    sound = {
        "input": np.sin(np.arange(576, dtype=np.float32) / 9)[None],
        "state": np.zeros((2, 1, 128), np.float32),
    }
    difference = float(np.abs(probability(after, sound) - probability(before, sound)).max())
    click.echo(f"largest difference from the model without: {difference:.1e}")
    if not difference <= LARGEST_DIFFERENCE:
        raise click.ClickException("the tuned model hears something else")
    if report is not None:
        report.write_text(report_html(found, path.name), encoding="utf-8")
        click.echo(f"{report} has the candidates, and where the tasks lie below the roofline")


def tuned(path: Path, budget: str, threads: int, store: Path) -> TuneReport:
    """Tune the model, and show how far it is."""
    with LiveTable() as progress:
        return hidet.tune(
            str(path),
            budget=budget,
            shapes=WINDOW,
            values={"sr": 16_000},
            options={"threads": threads},
            store=str(store),
            progress=progress,
        )


def compiled(path: Path, threads: int, store: str) -> CompiledGraph:
    """The model with the choices of a store; "off" for those of the rules alone."""
    options = {"threads": threads, "tune.store": store}
    return hidet.compile(str(path), target="cpu", shapes=WINDOW, values={"sr": 16_000}, options=options)


def probability(model: CompiledGraph, sound: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Of speech, as the model says."""
    return np.asarray(model(**sound)[0])


def model_path() -> Path:
    """The model in the installed package, which imports torchaudio that is not needed here, so it is only looked up."""
    package = importlib.util.find_spec("silero_vad")
    if package is None or package.origin is None:
        raise click.ClickException("silero-vad is not installed: pip install --no-deps silero-vad")
    return Path(package.origin).parent / "data" / "silero_vad.onnx"


if __name__ == "__main__":
    main()
