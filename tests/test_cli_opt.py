"""`hidet opt`: passes by name over text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hidet.cli import main
from hidet.plugins import host

GRAPH = """\
graph g(%x: f32[4]):
  const %c: f32[4] = [1.0, 2.0, 3.0, 4.0]
  %0: f32[4] = neg(%c)
  %1: f32[4] = mul(%x, %0)
  %2: f32[4] = exp(%x)
  return %1
"""

FOLDED = """\
graph g(%x: f32[4]):
  const %0: f32[4] = [-1.0, -2.0, -3.0, -4.0]
  %1: f32[4] = mul(%x, %0)
  return %1
"""

MODULE = """\
module(entry="main")

@kernel
def double(x: ~f32):
    i = grid()
    x[i] = x[i] * 2.0

@host
def main(x: ~f32, n: i64):
    launch("double", [n], [x])
"""

PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
from hidet.plugins.specs import PassSpec
HIDET_API = 1

@dataclass(frozen=True)
class Renames:
    '''Give the graph another name.'''
    name: ClassVar[str] = "rename"
    to: str
    times: float = 1.0
    is_loud: bool = False
    limit: int | None = None
    table: tuple[int, ...] = ()

    def run(self, graph, ctx):
        from dataclasses import replace
        name = self.to if self.limit is None else self.to[:self.limit]
        return replace(graph, name=name.upper() if self.is_loud else name)

def hidet_passes():
    return [PassSpec(name="rename", level="graph", load=__name__ + ":Renames")]
"""


def opt(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["opt", *arguments], input=text)


@pytest.fixture
def renaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A plug-in with a pass `rename` that has an option of every kind."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "renaming_plugin").mkdir()
    (tmp_path / "renaming_plugin" / "_plugin.py").write_text(PLUGIN)
    monkeypatch.setenv("HIDET_PLUGINS", "cpu,renaming_plugin._plugin")
    yield
    for name in ("renaming_plugin", "renaming_plugin._plugin"):
        sys.modules.pop(name, None)
    host._load.cache_clear()


def test_passes_run_in_the_order_in_which_they_are_named() -> None:
    assert opt(GRAPH, "-p", "fold-constants,eliminate-dead").stdout == FOLDED


def test_a_file_is_read_as_standard_input_is(tmp_path: Path) -> None:
    (tmp_path / "g.hir").write_text(GRAPH)
    assert opt("", str(tmp_path / "g.hir"), "-p", "fold-constants , eliminate-dead").stdout == FOLDED


def test_without_passes_the_text_is_only_verified() -> None:
    assert opt(GRAPH).stdout == GRAPH
    assert opt(MODULE).stdout == MODULE


def test_options_are_fields_of_the_pass() -> None:
    kept = opt(GRAPH, "-p", "fold-constants{max-bytes=8},eliminate-dead").stdout
    assert "%0: f32[4] = neg(%c)" in kept
    assert opt(GRAPH, "-p", "fold-constants{max_bytes=16},eliminate-dead{}").stdout == FOLDED


def test_passes_of_thread_ir_run_on_its_text() -> None:
    pytest.importorskip("hidet.cuda")
    shown = opt(MODULE, "-p", "gpu-block-launches", "--target", "cuda:sm_80")
    assert shown.exit_code == 0, shown.output
    assert opt(shown.stdout).stdout == shown.stdout
    assert "block=[128]" in shown.stdout


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("to=small", "small"),
        ("to=small,is-loud=true", "SMALL"),
        ("to=small, limit=2, times=2, is-loud=False", "sm"),
        ("to=small,limit=none", "small"),
    ],
)
def test_options_of_a_plugins_pass_have_the_types_of_its_fields(renaming: None, options: str, name: str) -> None:
    assert opt(GRAPH, "-p", f"rename{{{options}}}").stdout.startswith(f"graph {name}(")


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("fold-constant", "pass 'fold-constant' is unknown\nhint: did you mean 'fold-constants'"),
        ("decompose{depth=2}", "pass 'decompose' has no option 'depth'\nhint: it has no options"),
        (
            "unfold-control{nodes=2}",
            "pass 'unfold-control' has no option 'nodes'\nhint: it has max-nodes=256 (int)",
        ),
        ("unfold-control{max-nodes=many}", "pass 'unfold-control': option 'max-nodes' takes int, got 'many'"),
        ("unfold-control{max-nodes=1,max_nodes=2}", "option 'max_nodes' is given twice"),
        ("unfold-control{max-nodes}", "cannot read options 'max-nodes'\nhint: write name=value"),
        ("decompose{", "cannot read 'decompose{'\nhint: write them as name"),
        ("decompose simplify", "cannot read 'decompose simplify'"),
        ("expand-math", "pass 'expand-math' takes thread IR, and <stdin> is the text of a graph"),
        ("rename", "pass 'rename' needs to\nhint: it has to (str), times=1.0 (float)"),
        ("rename{to=a,is-loud=2}", "option 'is-loud' takes bool, got '2'"),
        ("rename{to=a,table=2}", "option 'table' is a tuple[int, ...], which no text can give"),
    ],
)
def test_what_cannot_be_run_is_named_with_what_there_is(renaming: None, passes: str, message: str) -> None:
    result = opt(GRAPH, "-p", passes)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ") and message in result.output


def test_a_pass_of_another_target_is_refused() -> None:
    pytest.importorskip("hidet.cuda")
    result = opt(GRAPH, "-p", "gpu-collapse-rows")
    assert "Error: pass 'gpu-collapse-rows' is for every gpu, not for cpu\nhint: --target names" in result.output


def test_text_that_is_wrong_is_named_with_its_line() -> None:
    assert "Error: graph text, line 4: operator 'mull' is unknown" in opt(GRAPH.replace("mul", "mull")).output
    assert "Error: program text, line 6, column 5" in opt(MODULE.replace("x[i] =", "x.i =")).output


def test_text_that_breaks_a_rule_of_the_ir_is_refused() -> None:
    result = opt(MODULE.replace('launch("double", [n]', 'launch("triple", [n]'))
    assert result.exit_code == 1
    assert "program main as <stdin> has it" in result.output


def test_the_list_has_every_pass_with_its_options(renaming: None) -> None:
    rows = opt("", "--list").stdout.splitlines()
    (unfold,) = [row for row in rows if row.startswith("unfold-control")]
    assert unfold.split()[:3] == ["unfold-control{max-nodes=256}", "graph", "all"]
    (rename,) = [row for row in rows if row.startswith("rename")]
    assert rename.split()[0] == "rename{to,times=1.0,is-loud=False,limit=None,table=()}"
    assert rename.endswith("Give the graph another name.")
