"""What notebooks show."""

from __future__ import annotations

import functools
import sys
import traceback
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

import hidet
from hidet import progress
from hidet.errors import ImportFailed
from hidet.graph import Graph
from hidet.lang import f32
from hidet.notebook import Shown


class Tags(HTMLParser):
    """Tags that are open, and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(value: Shown) -> str:
    """The text of a value's HTML, whose tags are closed and which loads nothing."""
    html = value._repr_html_()
    assert html is not None and "<script" not in html and "http" not in html
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    return tags.text


@functools.cache
def flow_graph() -> hidet.FlowGraph:
    x = hidet.symbol(["n", 4], dtype="float32")
    return hidet.trace_from(hidet.ops.relu(x + 1.0))


def test_a_tensor_is_its_type_and_elements() -> None:
    text = shown(hidet.asarray([[1.0, 2.0], [3.0, 4.0]]))
    assert "shape=(2, 2)" in text and "[3. 4.]" in text


def test_a_symbolic_tensor_has_no_elements() -> None:
    assert "shape=(2, 3)" in shown(hidet.symbol([2, 3]))


def test_graphs_are_counted_and_can_be_opened() -> None:
    flow = flow_graph()
    assert "1 inputs, 2 operators, 1 outputs" in shown(flow)
    assert isinstance(flow.graph, Graph) and "return" in shown(flow.graph)


def test_a_compiled_graph_shows_its_inputs_and_report() -> None:
    compiled = flow_graph().build()
    text = shown(compiled)
    assert "CompiledGraph for cpu" in text and "f32[n, 4]" in text and "modules" in text
    report = shown(compiled.report())
    assert f"{compiled.report().nodes.scheduled} scheduled" in report and "weights" in report


def test_a_compiled_module_shows_its_functions_and_source() -> None:
    @hidet.script
    def double(x: f32[4]):
        for i in range(4):
            x[i] = x[i] * 2.0

    with hidet.script_module() as module:
        module.add(double)
    text = shown(module.build())
    assert "CompiledModule with double" in text and "source" in text


def test_text_of_a_value_is_no_markup() -> None:
    graph = Graph("<b>", (), (), ())
    assert "<b>" in shown(graph) and "<b>" not in str(graph._repr_html_())


class Table(Shown):
    """A value of another wheel."""

    def __str__(self) -> str:
        return "a  <b>\n1  2"


def test_a_value_of_another_wheel_is_shown_as_it_prints() -> None:
    assert Table()._repr_html_() == "<pre>a  &lt;b&gt;\n1  2</pre>"


def test_without_the_plugin_a_value_is_text() -> None:
    tensor = hidet.ones([2])
    with hidet.plugins.without("report"):
        assert tensor._repr_html_() is None


@pytest.mark.parametrize(("debug", "frames"), [("0", 2), ("1", 3)])
def test_errors_of_users_come_without_frames_of_the_compiler(
    debug: str, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDET_DEBUG", debug)
    with pytest.raises(ImportFailed) as refused:
        hidet.compile("model.of-no-front-end")
    assert min(len(traceback.extract_tb(refused.value.__traceback__)), 3) == frames


def test_a_notebook_sees_how_far_a_compilation_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    handle = SimpleNamespace(update=lambda data, raw: said.append(data["text/plain"]))

    def display(data: dict[str, str], raw: bool, display_id: bool) -> SimpleNamespace:
        said.append(data["text/plain"])
        return handle

    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with progress.CompileProgress() as bar:
        bar.update(1, 3)
        bar.update(3, 3)
    assert said == ["hidet: 1 of 3 kernels compiled", "hidet: 3 of 3 kernels compiled", ""]
