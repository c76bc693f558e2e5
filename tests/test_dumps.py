"""What HIDET_DUMP writes: every stage of a compilation as text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hidet
from hidet.context import make_context
from hidet.errors import CompileError
from hidet.graph.parser import parse_graph
from hidet.plugins.registry import Registry
from hidet.testing.control_graphs import control_cases
from hidet.testing.golden import assert_golden, without_digests

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"

MODEL = """
symbol n: 1..4096 hint 16
graph scale(%x: f32[n, 8], param %w: f32[8]):
  const %c: f32[8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
  %0: f32[8] = neg(%c)
  %1: f32[n, 8] = mul(%x, %w)  # model.py:3 (scale)
  %2: f32[n, 8] = add(%1, %0)
  %3: f32[n, 8] = relu(%2)
  %4: f32[8, n] = transpose(%3, perm=[1, 0])
  %5: f32[n] = sum(%4, axes=[0])
  %6: f32[n, 1] = unsqueeze(%5, axes=[1])
  %7: f32[n, 8] = mul(%3, %6)
  return %7
"""

CONTROL = ("branches_of_different_shapes", "loop_of_growing_shape", "sizes_read_from_data")


def dumped(text: str, target: str, folder: Path) -> Path:
    """The folder of a graph that was compiled for another machine than this one, so that all have the same."""
    graph = parse_graph(text, make_context("cpu").registry.operators)
    hidet.compile(graph, target=target, options={"dump": folder, "cache": False, "threads": 1, "verify": True})
    (own,) = folder.iterdir()
    return own


def stages(folder: Path) -> str:
    """All files in order, each below its name; what equals the file before it is left out, and so is what the
    versions of other compilers decide."""
    parts: list[str] = []
    before = ""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        text = file.read_text()
        shown = "...\n" if file.suffix in (".ll", ".s") else "as before\n" if text == before else text
        parts.append(f"--- {file.relative_to(folder)}\n{shown}")
        before = text
    return without_digests("\n".join(parts))


def test_the_whole_dump_of_a_small_model(tmp_path: Path) -> None:
    assert_golden(stages(dumped(MODEL, "cpu:haswell", tmp_path)), GOLDEN / "dump_scale.txt")


def documented_files() -> list[re.Pattern[str]]:
    """Names of files in the first column of the table of docs/debugging.md."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "debugging.md").read_text(), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    # ".s" after "program_<symbol>.ll" is another ending of the same name.
    whole = [name if not name.startswith(".") else f"program_<symbol>{name}" for name in names]
    return [
        re.compile(r"\d\d_[\w-]+\.hir" if name[0].isdigit() else re.sub(r"<\w+>", r"\\w+", name.replace(".", r"\.")))
        for name in whole
    ]


def test_the_documentation_names_every_file_of_a_dump_and_no_other(tmp_path: Path) -> None:
    files = {path.name for path in dumped(MODEL, "cpu:haswell", tmp_path).iterdir()}
    patterns = documented_files()
    assert not [name for name in files if not any(pattern.fullmatch(name) for pattern in patterns)]
    missing = [pattern.pattern for pattern in patterns if not any(map(pattern.fullmatch, files))]
    # What few graphs need; the next test has it.
    assert missing.pop(0) == r"late_\w+\.hir"
    # What a GPU alone has; packages/hidet-cuda/tests/test_dumps.py finds it there.
    of_gpu = [r"\w+_\w+\.tile", *(rf"program_\w+\.{ending}" for ending in ("cu", "ptx", r"host\.ll", r"host\.s"))]
    assert missing == of_gpu


def test_late_passes_are_reported_and_dumped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = """
graph g(%x: f32[8, 8], %w: f32[8, 8]):
  %0: f32[8, 8] = matmul(%x, %w)
  return %0
  mutates 0 <- 0
"""
    seen: dict[str, bool] = {}
    monkeypatch.setattr(
        Registry,
        "pass_done",
        lambda self, name, level, before, after, seconds: seen.update({name: after is not before}),
    )
    text = (dumped(graph, "cpu:haswell", tmp_path) / "late_copy_overwrites.hir").read_text()
    assert "= copy(%0)" in text
    assert not seen["own-memory"]
    assert seen["copy-overwrites"]


def test_a_dump_has_llvm_ir_and_assembly_of_every_module(tmp_path: Path) -> None:
    folder = dumped(MODEL, "cpu:haswell", tmp_path)
    for program in folder.glob("program_*.hir"):
        symbol = program.stem.removeprefix("program_")
        assert f"@{symbol}(" in program.with_suffix(".ll").read_text()
        assert f"{symbol}:" in program.with_suffix(".s").read_text()


def test_code_that_the_compiler_refuses_is_dumped_before_it_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hidet.cpu.target import CpuTarget

    monkeypatch.setattr(CpuTarget, "source", lambda self, module: "define nonsense")
    with pytest.raises(CompileError, match="LLVM cannot parse"):
        dumped(MODEL, "cpu", tmp_path)
    (own,) = tmp_path.iterdir()
    assert [file.read_text() for file in own.glob("*.ll")] == ["define nonsense"]


def test_branches_and_loops_are_part_of_the_text_of_a_host_program(tmp_path: Path) -> None:
    graphs = {case.name: case.graph for case in control_cases()}
    texts = []
    for name in CONTROL:
        hidet.compile(graphs[name], target="cpu:haswell", options={"dump": tmp_path / name, "cache": False})
        texts += [f"--- {name}\n{file.read_text()}" for file in (tmp_path / name).glob("*/host.txt")]
    assert_golden(without_digests("\n".join(texts)), GOLDEN / "host_control.txt")
