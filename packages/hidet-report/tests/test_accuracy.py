"""Kernels against float64: a planted defect is found, named, and shown again by the script that is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hidet
from hidet import dtypes
from hidet.cli import main
from hidet.dtypes import f32, i64
from hidet.errors import HidetError, OptionError
from hidet.graph.builder import GraphBuilder
from hidet.graph.control import emit_while
from hidet.graph.graph import Graph
from hidet.graph.types import TensorType
from hidet.plugins import use
from hidet.plugins.host import load_registry
from hidet.report.accuracy import Accuracy, AccuracyRow, errors_of, limit_of, problem_of
from hidet.report.checking import check_accuracy
from hidet.report.minify import minify, minify_model
from hidet.report.repro import read_inputs, write_inputs

from .conftest import LAYER, counted, graph

DEFECT = '''
"""A softmax whose results are a hundredth too large."""

from dataclasses import replace

from hidet.ir import build
from hidet.ir.stmt import Store
from hidet.ir.visit import rewrite
from hidet.plugins.specs import ScheduleSpec
from hidet.schedule.fallback import FallbackRule

HIDET_API = 1


class Wrong(FallbackRule):
    def build(self, match, params, ctx):
        program = super().build(match, params, ctx)

        def change(node):
            if isinstance(node, Store) and getattr(node.buffer, "name", "") == "softmax":
                return replace(node, value=build.binary("mul", node.value, 1.01))
            return None

        functions = [replace(f, body=rewrite(f.body, change)) for f in program.module.functions]
        return replace(program, module=replace(program.module, functions=tuple(functions)))


rule = Wrong()


def hidet_schedules():
    return [ScheduleSpec(name="defect.softmax", ops=("softmax",), targets=("*",), load="defect:rule")]
'''


@pytest.fixture
def defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A plug-in with the defect, as a module that can be imported."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "defect.py").write_text(DEFECT)
    monkeypatch.syspath_prepend(str(tmp_path / "plugins"))
    monkeypatch.delitem(sys.modules, "defect", raising=False)
    return "defect"


def given(graph: Graph) -> list[Any]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(value.tensor.shape).astype(np.float32) for value in graph.inputs]


def test_right_kernels_are_as_near_to_float64_as_numpy(layer) -> None:
    found = check_accuracy(layer, *given(graph(LAYER)))
    assert found.is_right and [row.title for row in found.rows] == ["matmul + 2", "softmax"]
    for row in found.rows:
        assert 0 < row.own.rms <= row.limit.rms and row.own_plain.rms < 1e-5 and row.total.rms < 1e-5
    assert found.rows[1].node == "attention" and found.rows[1].line == "model.py:9"
    assert "all 2 results are as near to float64 as rounding allows" in str(found)


def test_a_planted_defect_is_found_named_and_reproduced(defect, tmp_path) -> None:
    with use(defect):
        compiled = hidet.compile(graph(LAYER), options={"threads": 1})
        script = tmp_path / "wrong.py"
        found = check_accuracy(compiled, *given(graph(LAYER)), repro=script)
    wrong = found.first_wrong
    assert wrong is not None and wrong.kernel.startswith("softmax_")
    assert (wrong.node, wrong.line) == ("attention", "model.py:9")
    assert wrong.own.rms == pytest.approx(0.01, rel=0.01) and "RMS error 1.0e-02" in wrong.problem
    assert found.repro == str(script) and "1 of 2 results are wrong, first softmax_" in str(found)
    assert run(script, tmp_path, "hidet.cpu._plugin,hidet.report._plugin,defect") == 1
    # Without the plug-in the same kernel is right.
    assert run(script, tmp_path, "hidet.cpu._plugin,hidet.report._plugin") == 0


def run(script: Path, tmp_path: Path, plugins: str) -> int:
    """How a script ends, with these plug-ins."""
    env = {**os.environ, "HIDET_PLUGINS": plugins, "PYTHONPATH": str(tmp_path / "plugins"), "HIDET_STRICT_PLUGINS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    assert "softmax" in done.stdout
    return done.returncode


def test_the_command_names_the_wrong_kernel_and_ends_with_1(defect, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layer.hir").write_text(LAYER)
    right = CliRunner().invoke(main, ["accuracy", "layer.hir"])
    assert right.exit_code == 0 and "as near to float64" in right.output, right.output
    with use(defect):
        wrong = CliRunner().invoke(main, ["accuracy", "layer.hir", "--json"])
    assert wrong.exit_code == 1
    found = json.loads(wrong.output)
    assert not found["is_right"] and [bool(row["problem"]) for row in found["rows"]] == [False, True]
    assert Path(found["repro"]).exists() and Path("layer_wrong_kernel.npz").exists()


def test_a_wrong_result_is_minified_to_its_operator(defect, tmp_path) -> None:
    text = "graph g(%x: f32[4, 8]):\n  %0: f32[4, 8] = exp(%x)\n  %1: f32[4, 8] = tanh(%0)\n"
    text += "  %2: f32[4, 8] = softmax(%1, axis=1)\n  %3: f32[4, 8] = neg(%2)\n  return %3\n"
    with use(defect):
        small = minify_model(graph(text), given(graph(text)), tmp_path / "wrong.py", options={"threads": 1})
    assert [node.op.name for node in small.graph.nodes] == ["softmax"]
    assert run(tmp_path / "wrong.py", tmp_path, "hidet.cpu._plugin,hidet.report._plugin,defect") == 1


def test_the_command_writes_the_smallest_part_with_the_fault(defect, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "graph g(%x: f32[4, 8]):\n  %0: f32[4, 8] = exp(%x)\n  %1: f32[4, 8] = softmax(%0, axis=1)\n"
    Path("model.hir").write_text(text + "  %2: f32[4, 8] = neg(%1)\n  return %2\n")
    right = CliRunner().invoke(main, ["minify", "model.hir"])
    assert right.exit_code == 1 and "no fault to find" in right.output
    with use(defect):
        wrong = CliRunner().invoke(main, ["minify", "model.hir", "--option", "threads=1"])
    assert wrong.exit_code == 0, wrong.output
    assert wrong.output.startswith("model_small.py shows it with 1 of 3 operators: RMS error 1.0e-02")
    assert run(tmp_path / "model_small.py", tmp_path, "hidet.cpu._plugin,hidet.report._plugin,defect") == 1


def test_the_command_minifies_what_does_not_compile(tmp_path, monkeypatch) -> None:
    class Broken:
        HIDET_API = 1

        def hidet_pass_done(self, name: str, after: Any) -> None:
            if name == "simplify" and any(node.op.name == "tanh" for node in after.nodes):
                raise AssertionError("a fault of this pass")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIDET_STRICT_PLUGINS", "1")
    text = (
        "graph g(%x: f32[4]):\n  %0: f32[4] = exp(%x)\n  %1: f32[4] = tanh(%0)\n  %2: f32[4] = neg(%1)\n  return %2\n"
    )
    Path("model.hir").write_text(text)
    with use(Broken()):
        result = CliRunner().invoke(main, ["minify", "model.hir", "-o", "small.py", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["operators"], found["of"], found["script"]) == (1, 3, "small.py")
    assert "a fault of this pass" in found["what"] and Path("small.py").exists()


def test_a_failing_compilation_is_minified(tmp_path) -> None:
    text = "graph g(%x: f32[4, 8]):\n" + "".join(
        f"  %{n}: f32[4, 8] = {'softmax(%x, axis=1)' if n == 0 else f'exp(%{n - 1})'}\n" for n in range(9)
    )

    class Broken:
        HIDET_API = 1

        def hidet_pass_done(self, name: str, after: Any) -> None:
            if name == "simplify" and any(node.op.name == "softmax" for node in after.nodes):
                raise AssertionError("a fault of this pass")

    with use(Broken()), pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIDET_STRICT_PLUGINS", "1")
        with use(Broken()):
            small = minify_model(graph(text + "  return %8\n"), None, tmp_path / "failure.py")
    assert [node.op.name for node in small.graph.nodes] == ["softmax"]
    assert "a fault of this pass" in small.what and "a fault of this pass" in (tmp_path / "failure.py").read_text()


def test_a_model_without_a_fault_says_so(tmp_path) -> None:
    with pytest.raises(HidetError, match="no fault to find"):
        minify_model(graph(LAYER), given(graph(LAYER)), tmp_path / "none.py")
    assert not (tmp_path / "none.py").exists()


@dataclass(frozen=True)
class Needs:
    """Fails where all of these operators are."""

    names: frozenset[str]

    def __call__(self, part: Graph) -> bool:
        return self.names <= {node.op.name for node in part.nodes}


def test_minifying_keeps_what_is_needed_together() -> None:
    names = ("exp", "neg", "tanh", "abs", "relu", "sqrt", "sigmoid")
    lines = [f"  %{n}: f32[4] = {name}({'%x' if n == 0 else f'%{n - 1}'})\n" for n, name in enumerate(names)]
    whole = graph(f"graph g(%x: f32[4]):\n{''.join(lines)}  return %6\n")
    small = minify(whole, Needs(frozenset({"neg", "relu"})))
    assert {"neg", "relu"} <= {node.op.name for node in small.nodes} and len(small.nodes) < 6
    assert [node.op.name for node in minify(whole, Needs(frozenset({"abs"}))).nodes] == ["abs"]
    with pytest.raises(OptionError, match="does not fail"):
        minify(whole, Needs(frozenset({"matmul"})))


def test_views_and_loops_do_not_stop_a_check() -> None:
    text = "graph g(%x: f32[4, 8]):\n  %0: f32[4, 8] = exp(%x)\n  %1: f32[8, 4] = transpose(%0, perm=[1, 0])\n"
    text += "  %2: f32[8, 4] = softmax(%1, axis=1)\n  return %2\n"
    found = check_accuracy(hidet.compile(graph(text)), *given(graph(text)))
    assert found.is_right and all(row.own is not None for row in found.rows)
    looped = check_accuracy(hidet.compile(counted()), np.zeros(4, np.float32), np.asarray(3, np.int64))
    assert looped.is_right


def test_a_defect_inside_of_a_loop_is_found(defect, tmp_path) -> None:
    builder = GraphBuilder(load_registry().operators, "looped")
    x, limit = builder.input(TensorType(f32, (4, 8))), builder.input(TensorType(i64, ()))
    inner = builder.nested("body")
    inner.input(TensorType(i64, ()))
    body = inner.build([inner.emit("softmax", inner.input(x.type), axis=1)])
    looped = builder.build(emit_while(builder, body, limit=limit, carried=[x]))
    given = np.random.default_rng(0).standard_normal((4, 8), np.float32), np.asarray(3, np.int64)
    right = check_accuracy(hidet.compile(looped, options={"threads": 1}), *given)
    (row,) = right.rows
    assert right.is_right and row.own is not None and row.total is None
    with use(defect):
        compiled = hidet.compile(looped, options={"threads": 1})
        found = check_accuracy(compiled, *given, repro=tmp_path / "wrong.py")
    assert found.first_wrong is not None and found.first_wrong.kernel.startswith("softmax_")
    assert run(tmp_path / "wrong.py", tmp_path, "hidet.cpu._plugin,hidet.report._plugin,defect") == 1


def test_what_cannot_be_checked_is_told() -> None:
    row = AccuracyRow("nonzero", "nonzero_0", "", "", "i64")
    assert Accuracy("m", (row,)).verdict.endswith(
        "all 0 results are as near to float64 as rounding allows, 1 could not be checked"
    )


def test_limits_are_made_of_plain_errors_and_rounding() -> None:
    exact = np.linspace(1, 2, 100)
    near = exact.astype(np.float32)
    errors = errors_of(near, exact)
    assert 0 < errors.rms <= 2.0**-24
    assert limit_of(errors, dtypes.f32).rms == 2 * errors.rms + 2.0**-24
    assert problem_of(near, exact, near, dtypes.f32)[3] == ""
    assert problem_of(near * np.float32(1.001), exact, near, dtypes.f32)[3].startswith("RMS error")
    spot = near.copy()
    spot[3] += np.float32(1e-6)
    assert problem_of(spot, exact, near, dtypes.f32)[3]
    spot[3] = np.nan
    assert problem_of(spot, exact, near, dtypes.f32)[3] == "1 of 100 elements are NaN or infinite, or ought to be"
    whole = np.arange(5)
    assert problem_of(whole + (whole == 2), whole, whole, dtypes.i64)[3] == "1 of 5 elements differ"


def test_inputs_of_every_type_come_back(tmp_path) -> None:
    import ml_dtypes

    arrays = [np.ones((2, 3), ml_dtypes.bfloat16), np.asarray(3, np.int64), np.asarray([True, False])]
    write_inputs(tmp_path / "inputs.npz", arrays, {"sha": np.arange(4.0)})
    *inputs, constants = read_inputs(tmp_path / "inputs.npz")
    for one, other in zip(inputs, arrays, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
    assert list(constants) == ["sha"] and constants["sha"][3] == 3.0
