"""Code blocks of documents that were written for hidet 0.6 run as they are, block after block.

HIDET_DOCUMENTS names the folder with the documents: reStructuredText, Markdown, and text that was copied from a page.
Without a GPU, "cuda" is read as "cpu", and blocks that launch kernels of a GPU are left out. `torch.hub.load` gives a
small model of the kind that is asked for, with random weights. What a block prints has the form of what the document
says: the same lines, whatever numbers, devices and operators are in them, but for bars of progress.
"""

from __future__ import annotations

import ast
import os
import re
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

FOLDER = os.environ.get("HIDET_DOCUMENTS", "")
RST = re.compile(r"^\.\. code-block:: *[Pp]ython\n\n?((?:[ \t]+\S.*\n|\s*\n)+)", re.MULTILINE)
FENCED = re.compile(r"^```(?:python)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"\.\. rst-class:: sphx-glr-script-out\n\n \.\. code-block:: none\n\n((?:    .*\n|\s*\n)+)")
TABLE = re.compile(r"^ +kind +operator .*\n(?:[ -]+\n)?(?:\d+ .*\n)+", re.MULTILINE)
NEEDS_A_GPU = re.compile(r"cuda_graph\(\)\.run|lang\.cuda|cuda_graph\(\)")
ACTS = (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.With, ast.For, ast.FunctionDef)

pytestmark = pytest.mark.skipif(not FOLDER, reason="HIDET_DOCUMENTS names no folder")


def is_code(text: str) -> bool:
    """Whether a text is Python that does something: prose may be an expression."""
    try:
        body = ast.parse(textwrap.dedent(text)).body
    except SyntaxError:
        return False
    return any(isinstance(s, ACTS) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)) for s in body)


def of_plain_text(text: str) -> list[str]:
    """Runs of paragraphs that are Python. What a program prints may follow its last line: the longest start counts."""
    blocks: list[str] = []
    running = False
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        starts = ("\n".join(lines[:count]) for count in range(len(lines), 0, -1))
        code = next((start for start in starts if is_code(start)), None)
        if code is None:
            running = False
        elif running:
            blocks[-1] += f"\n{code}\n"
        else:
            blocks.append(code + "\n")
            running = len(code) == len(paragraph)
    return blocks


def blocks_of(path: Path) -> list[str]:
    """The Python of a document; shell commands in it are none."""
    text = path.read_text()
    found = {".rst": RST.findall, ".md": FENCED.findall}.get(path.suffix, of_plain_text)(text)
    return [block for block in map(textwrap.dedent, found) if is_code(block)]


def outputs_of(path: Path) -> list[str]:
    """For each block of `blocks_of`, what the document says that it prints; "" where it says nothing."""
    text = path.read_text()
    if path.suffix != ".rst":
        return TABLE.findall(text)
    ends = [match.end() for match in RST.finditer(text) if is_code(textwrap.dedent(match.group(1)))]
    starts = [match.start() for match in RST.finditer(text)]
    printed = []
    for end in ends:
        following = min([start for start in starts if start >= end], default=len(text))
        found = PRINTED.search(text, end, following)
        printed.append("" if found is None else textwrap.dedent(found.group(1)))
    return printed


def form(text: str) -> list[str]:
    """The lines of an output without what differs from run to run and from version to version."""
    lines = [line.rstrip() for line in text.splitlines() if "it/s]" not in line and "s/it]" not in line]
    text = "\n".join(line for line in lines if line)
    for pattern, name in (
        (r"\[?\b(cuda|cpu)(:\d+)?\b\]?", "DEVICE"),
        (r"<[^<>]+>", "OPERATOR"),
        (r"= Constant\(.*\)", "= CONSTANT"),
        (r"= \w+\(.*\)", "= OPERATOR(...)"),
        (r"-?\d+\.\d*(e[+-]\d+)?|-?\d+\b", "NUMBER"),
        (r"(?<!\S)-+(?!\S)", "LINE"),
        (r"[ \t]+", " "),
        (r"\[ ", "["),
        (r" \]", "]"),
    ):
        text = re.sub(pattern, name, text)
    return text.splitlines()


def row_form(row: str) -> tuple[str, ...]:
    """Of a row of a table of operators: number, kind, whether there is an operator, type and error."""
    cells = row.split()
    return (*cells[:2], *["OPERATOR"][: len(cells) > 4], *cells[-2:])


def small_model(repository: str, name: str, **more: Any) -> nn.Module:
    """An image classifier in the place of a large one."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 7, 4, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).eval()


class Event:
    """What is measured of a device that is the host."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.seconds = 0.0

    def record(self) -> None:
        self.seconds = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.seconds - self.seconds)


@pytest.fixture
def names(monkeypatch, tmp_path):
    """What blocks may name that the text around them speaks of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.hub, "load", small_model)
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.Tensor, "cuda", lambda self, *device: self)
        monkeypatch.setattr(nn.Module, "cuda", lambda self, *device: self)
        monkeypatch.setattr(torch, "cuda", SimpleNamespace(**{**vars(torch.cuda), "Event": Event}))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda *device: None)
    import hidet
    import hidet.torch

    np.random.seed(0)
    torch.manual_seed(0)
    with hidet.option.context():
        yield {"torch": torch, "hidet": hidet, "model": small_model("", ""), "inputs": torch.randn(1, 3, 64, 64)}
    hidet.torch.dynamo_config.reset()
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", sorted(Path(FOLDER).glob("*.*")) if FOLDER else [], ids=lambda path: path.name)
def test_blocks_of_a_document_run_one_after_the_other(path, names, capsys):
    failed, left_out, ran, compared, printed = [], 0, 0, 0, outputs_of(path)
    for number, block in enumerate(blocks_of(path)):
        if not torch.cuda.is_available():
            if NEEDS_A_GPU.search(block):
                left_out += 1
                continue
            block = block.replace("'cuda'", "'cpu'")
        if "(..., " in block:  # the text speaks of any arguments
            left_out += 1
            continue
        try:
            with torch.no_grad():
                exec(compile(block, f"{path.name} block {number}", "exec"), names)
            ran += 1
            shown = capsys.readouterr().out
            if path.suffix == ".rst" and printed[number]:
                assert form(shown) == form(printed[number]), f"it prints\n{shown}"
                compared += 1
            elif "model_opt(x)" in block and printed:
                assert form(shown)[:2] == form(printed[0])[:2], f"it prints\n{shown}"
                assert {row_form(row) for row in form(shown)[2:-1]} <= {row_form(row) for row in form(printed[0])[2:]}
                compared += 1
        except Exception as error:  # noqa: BLE001  # a document is told with all that is wrong
            failed.append(f"block {number}: {type(error).__name__}: {error}\n{block}")
    with capsys.disabled():
        print(
            f"\n{path.name}: {ran} blocks ran, {compared} outputs compared, {len(failed)} failed, {left_out} left out"
        )
    assert not failed, "\n".join(failed)
    assert ran
