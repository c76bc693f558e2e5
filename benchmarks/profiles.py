"""Profiles and pages of models: whether rows add up to the call, and how large and fast the pages are.

    python benchmarks/profiles.py                          five models, one thread
    python benchmarks/profiles.py --models gpt2 --pages pages/
    python benchmarks/profiles.py --device cuda            the same models on a GPU

`rows` are kernels, and those that name a line of the model; `sum` is the time of all rows and of the host beside them
as a share of a call; `after` is the fastest call after the profile over the fastest before. Pages are loaded by
Chromium, where that is on PATH. Ends with 1 where a sum is further than 3 % from 1, where a row has no line, or where
the browser says anything of an error. On a GPU, a call that is timed beside the profile ends when the device is done.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.table import Table

import hidet
from benchmarks.options import names_from, report_console
from hidet.cli.timing import time_calls
from hidet.report import check_accuracy
from tests.models.zoo import MODELS

ALLOWED = 0.03
"""How far the sum of the rows may be from the time of a call, as a share of it."""

_CHROMIUM = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom")
_NOTE_LOADED = """<script>addEventListener("load", () =>
document.documentElement.setAttribute("data-loaded", Math.round(performance.now())));</script></body>"""


def loaded(page: Path) -> tuple[int | None, bool]:
    """Milliseconds until a page is loaded (None without a browser), and whether the browser said nothing of errors."""
    if shutil.which("chromium") is None:
        return None, True
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(page.read_text().replace("</body>", _NOTE_LOADED))
        command = [*_CHROMIUM, copy.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'data-loaded="(\d+)"', done.stdout)
    is_quiet = "CONSOLE" not in done.stderr and "Uncaught" not in done.stderr
    return (int(found[1]) if found else None), is_quiet and found is not None


def finished(run: Callable[[], object], device: str) -> None:
    """Call, and wait until a GPU has done what was called."""
    run()
    if device == "cuda":
        torch.cuda.synchronize()


@click.command()
@click.option(
    "--models",
    default="minilm,resnet50,gpt2,mobilenet_v2,vit_b_16",
    show_default=True,
    callback=names_from(list(MODELS)),
    help="Models of tests/models, comma-separated.",
)
@click.option("--seconds", default=4.0, show_default=True, help="How long each profile measures.")
@click.option("--device", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True)
@click.option("--pages", type=click.Path(file_okay=False, path_type=Path), help="A folder for the pages.")
def main(models: tuple[str, ...], seconds: float, device: str, pages: Path | None) -> None:
    """Profile models, and write a page about each."""
    table = Table("model", "call", "rows", "with a line", "sum", "after", "page", "loaded in")
    is_right = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = pages or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in models:
            torch.manual_seed(0)
            model = MODELS[name].build().to(device)
            given = {key: value.to(device) for key, value in MODELS[name].inputs(0).items()}
            compiled = hidet.compile(model, given, options={"threads": 1})
            run = partial(finished, partial(compiled, **given), device)
            before = min(time_calls(run, seconds))
            found = compiled.profile(**given, seconds=seconds)
            ratio = min(time_calls(run, seconds)) / before
            page = folder / f"{name}.html"
            compiled.report().html(page, found, check_accuracy(compiled, **given))
            milliseconds, is_quiet = loaded(page)
            lines = sum(bool(row.line) for row in found.rows)
            is_right &= abs(found.coverage - 1) <= ALLOWED and lines == len(found.rows) and is_quiet
            table.add_row(
                name,
                f"{found.seconds * 1e3:.2f} ms",
                str(len(found.rows)),
                str(lines),
                f"{found.coverage:.1%}",
                f"{ratio:.3f}",
                f"{page.stat().st_size / 1e6:.2f} MB",
                "-" if milliseconds is None else f"{milliseconds} ms",
            )
    report_console().print(table)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
