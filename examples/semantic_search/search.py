"""Search a text by meaning with all-MiniLM-L6-v2, compiled by hidet, and compare it with eager PyTorch and Inductor.

python search.py
python search.py --query "Why do my eyes water in the kitchen?" --text notes.txt --backends eager,hidet
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

# Nothing is looked up on the network; libraries read this when they are imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import click
import torch
from encoder import MiniLM, load_minilm
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from hidet.runtime.compiled import CompileReport

BACKENDS = ("eager", "inductor", "hidet")
QUERIES = (
    "Which animal sleeps the longest?",
    "How can a plane stay in the air?",
    "Why do my eyes water in the kitchen?",
)
LARGEST_DIFFERENCE = 1e-4
"""Elements of the vectors are at most 1; a difference above this means that something is wrong."""

NEXT = (
    'Next: model = torch.compile(model, backend="hidet") in a script of yours; README.md has the rest, and '
    "examples/voice_activity does the same for an ONNX model."
)

Encode = Callable[[str], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Ready:
    """A backend after its first call. first_call: its seconds, nearly all of them compilation; 0 for eager."""

    name: str
    encode: Encode
    first_call: float


@click.command()
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="One sentence a line.")
@click.option("--query", "queries", multiple=True, help="What to look for; may be repeated.")
@click.option("--top", default=3, show_default=True, help="Matches shown for a query.")
@click.option("--backends", default=",".join(BACKENDS), show_default=True, help="The last one does the search.")
def main(text: Path | None, queries: Sequence[str], top: int, backends: str) -> None:
    """Search a text by meaning, with every backend, and print matches, differences and latencies."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    names = backends.split(",")
    path = text or Path(__file__).with_name("facts.txt")
    sentences = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    warnings.simplefilter("ignore")

    model = load_minilm()
    parameters = sum(parameter.numel() for parameter in model.encoder.parameters())
    console.print(
        f"all-MiniLM-L6-v2, {parameters / 1e6:.1f} M trained parameters, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}; {len(sentences)} sentences of {path.name}"
    )
    _warn_of_load(console)
    with torch.no_grad(), _empty_caches(), _collected_reports(names) as reports:
        ready, failures = _prepare_all(console, model, names, sentences[0])
        if not ready:
            raise click.ClickException("no backend works")
        vectors = {backend.name: torch.cat([backend.encode(line) for line in sentences]) for backend in ready}
        chosen = ready[-1]
        console.print(f"\n[bold]Best matches[/bold], found by {chosen.name}")
        for query in queries or QUERIES:
            _print_matches(console, query, chosen.encode(query), vectors[chosen.name], sentences, top)
        differences = {name: _difference(vector, vectors[ready[0].name]) for name, vector in vectors.items()}
        _print_comparison(console, ready, failures, differences, _latencies(ready, sentences))
    if chosen.name == "hidet":
        _print_nodes(console, reports)
        console.print(f"\n{NEXT}", markup=False, highlight=False)
    # A peer may be missing (Inductor needs a C++ compiler); the backend that was to do the search may not.
    if names[-1] in failures or max(differences.values()) > LARGEST_DIFFERENCE:
        sys.exit(1)


@contextmanager
def _collected_reports(names: Sequence[str]) -> Iterator[Sequence[CompileReport]]:
    """What hidet has to say about its compilations; nothing when it does not take part."""
    if "hidet" not in names:
        yield ()
        return
    import hidet.torch

    with hidet.torch.collect_reports() as reports:
        yield reports


@contextmanager
def _empty_caches() -> Iterator[None]:
    """Let every compiler start from nothing, so that the seconds printed are those of a first run."""
    with tempfile.TemporaryDirectory(prefix="semantic-search-", ignore_cleanup_errors=True) as folder:
        os.environ["HIDET_CACHE_DIR"] = os.path.join(folder, "hidet")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        yield


def _prepare_all(
    console: Console, model: MiniLM, names: Sequence[str], sentence: str
) -> tuple[list[Ready], dict[str, str]]:
    """Compile with each backend; returns those that work and why the others do not."""
    ready: list[Ready] = []
    failures: dict[str, str] = {}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    for name in names:
        with Progress(*columns, console=console, transient=True) as progress:
            progress.add_task(f"compiling with {name}" if name != "eager" else "loading")
            try:
                ready.append(_prepare(model, name, sentence))
            except Exception as error:  # noqa: BLE001 - one backend that fails must not hide the others
                failures[name] = _first_line(error)
        if name in failures:
            console.print(f"{name}: cannot be used: {failures[name]}", style="red", markup=False)
        elif name != "eager":
            console.print(f"{name}: compiled in {ready[-1].first_call:.1f} s")
    return ready, failures


def _prepare(model: MiniLM, name: str, sentence: str) -> Ready:
    """Make one backend ready by its first call. This line is all that using hidet takes."""
    encoder = model.encoder if name == "eager" else torch.compile(model.encoder, backend=name)

    def encode(line: str) -> torch.Tensor:
        vector: torch.Tensor = encoder(**model.tokens(line))
        return vector

    start = time.perf_counter()
    encode(sentence)
    return Ready(name, encode, 0.0 if name == "eager" else time.perf_counter() - start)


def _latencies(
    ready: Sequence[Ready], sentences: Sequence[str], rounds: int = 3, limit: float = 1.0
) -> dict[str, float]:
    """Return each backend's median seconds for one sentence; they take turns, so a disturbance meets all of them.

    limit: seconds after which a turn ends, however many sentences are left.
    """
    durations: dict[str, list[float]] = {backend.name: [] for backend in ready}
    for _ in range(rounds):
        for backend in ready:
            backend.encode(sentences[0])
            end = time.perf_counter() + limit
            for line in sentences:
                start = time.perf_counter()
                backend.encode(line)
                durations[backend.name].append(time.perf_counter() - start)
                if time.perf_counter() > end:
                    break
    return {name: statistics.median(values) for name, values in durations.items()}


def _difference(vectors: torch.Tensor, expected: torch.Tensor) -> float:
    return float((vectors - expected).abs().max())


def _print_matches(
    console: Console, query: str, vector: torch.Tensor, vectors: torch.Tensor, sentences: Sequence[str], top: int
) -> None:
    scores, places = (vectors @ vector[0]).topk(min(top, len(sentences)))
    console.print(f"\n  {query}", style="cyan", markup=False, highlight=False)
    for score, place in zip(scores.tolist(), places.tolist(), strict=True):
        console.print(f"    {score:.2f}  {sentences[place]}", markup=False, highlight=False)


def _print_comparison(
    console: Console,
    ready: Sequence[Ready],
    failures: dict[str, str],
    differences: dict[str, float],
    latencies: dict[str, float],
) -> None:
    first = ready[0].name
    console.print("\n[bold]One sentence, batch 1[/bold]")
    table = Table()
    for column in ("backend", "compile s", "median ms", f"speed-up over {first}", f"largest difference from {first}"):
        table.add_column(column, justify="left" if column == "backend" else "right")
    for backend in ready:
        name = backend.name
        table.add_row(
            name,
            f"{backend.first_call:.1f}" if backend.first_call else "-",
            f"{latencies[name] * 1e3:.2f}",
            f"{latencies[first] / latencies[name]:.2f}",
            "-" if backend is ready[0] else f"{differences[name]:.1e}",
        )
    for name in failures:
        table.add_row(name, "-", "-", "-", "failed")
    console.print(table)


def _warn_of_load(console: Console) -> None:
    """Say where the machine is busy: threads that wait for their turn make the comparison say little."""
    if not hasattr(os, "getloadavg"):
        return
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.75 * cpus:
        console.print(
            f"This machine is busy (load {load:.1f} on {cpus} CPUs): latencies vary, and systems whose threads spin "
            "while they wait, as torch's do, lose more than they would on an idle one.",
            style="yellow",
        )


def _print_nodes(console: Console, reports: Sequence[CompileReport]) -> None:
    """Say how many operators hidet handed back to torch."""
    console.print(
        f"hidet: {sum(report.kernels for report in reports)} kernels, "
        f"{sum(report.nodes.eager for report in reports)} operators left to torch"
    )


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


if __name__ == "__main__":
    main()
