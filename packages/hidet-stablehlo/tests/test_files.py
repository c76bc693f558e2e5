"""Files of StableHLO, as text and as bytes, read by this wheel alone: these tests run where jax is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hidet
import hidet.stablehlo
from hidet.cli import main
from hidet.errors import HidetError, ImportFailed, UnsupportedOp

DATA = Path(__file__).parent / "data"
FILES = [f"{name}{end}" for name in ("perceptron", "mixed") for end in (".mlir", "_generic.mlir", ".mlirbc", ".jax")]


def arrays_of(name: str) -> tuple[list[Any], list[Any]]:
    """Arguments and results of a function, as jax computed them."""
    with np.load(DATA / f"{name}.npz") as held:
        return tuple([held[key] for key in sorted(held) if key.startswith(kind)] for kind in ("in", "out"))


def leaves(made: Any) -> list[Any]:
    """As jax orders them."""
    return [made[key] for key in sorted(made)] if isinstance(made, dict) else list(made)


def module(body: str, arguments: str = "%x: tensor<2x3xf32>", results: str = "tensor<2x3xf32>") -> str:
    return f"func.func @main({arguments}) -> {results} {{\n{body}\n}}\n"


def unary(line: str, result: str) -> str:
    """A function of one operation."""
    return module(f"  %0 = stablehlo.{line}\n  return %0 : {result}")


@pytest.mark.parametrize("file", FILES)
def test_text_and_bytes_are_compiled_without_jax(file) -> None:
    inputs, expected = arrays_of(file.partition("_")[0].partition(".")[0])
    compiled = hidet.compile(DATA / file)
    made = leaves(compiled(*inputs))
    # An export says what results are called; a module has them in order.
    assert len(made) == len(expected)
    for ours, theirs in zip(made, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        assert np.asarray(ours).dtype == theirs.dtype


def test_an_export_is_called_as_its_function_is() -> None:
    compiled = hidet.compile(DATA / "perceptron.jax")
    for rows in (1, 4):
        made = compiled(x=np.ones((rows, 4), np.float32))
        assert sorted(made) == ["largest", "scores"] and made["scores"].shape == (rows, 3)


def test_nothing_of_jax_is_imported_to_read_a_file(tmp_path) -> None:
    program = f"""
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib", "flatbuffers"):
            raise ImportError(name)

sys.meta_path.insert(0, Refused())
import numpy, hidet
compiled = hidet.compile({str(DATA / "perceptron.jax")!r})
compiled.save("model.hidet")
made = hidet.load("model.hidet")(numpy.ones((2, 4), numpy.float32))
assert made["scores"].shape == (2, 3)
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_the_command_line_takes_files(tmp_path) -> None:
    for source in ("perceptron.mlir", "perceptron.jax"):
        target = tmp_path / f"{source}.hidet"
        result = CliRunner().invoke(main, ["compile", str(DATA / source), "-o", str(target)])
        assert result.exit_code == 0, result.output
        assert "f32[" in result.output and target.exists()


def test_shapes_and_values_take_the_place_of_inputs() -> None:
    graph = hidet.stablehlo.from_stablehlo(DATA / "perceptron.jax", shapes={"x": (2, 4)}).graph
    assert graph.inputs[0].tensor.shape == (2, 4)
    bound = hidet.compile(hidet.stablehlo.from_stablehlo(DATA / "perceptron.mlir", values={"x": np.ones((2, 4))}))
    assert bound()[0].shape == ()
    with pytest.raises(ImportFailed, match="given for 'y', which is no input: x"):
        hidet.stablehlo.from_stablehlo(DATA / "perceptron.jax", shapes={"y": (2, 4)})


def test_constants_that_are_aligned_are_not_copied(tmp_path) -> None:
    from hidet.stablehlo.elements import elements_of
    from hidet.stablehlo.program import Ranked

    held = np.arange(6, dtype=np.float32)
    made = elements_of(Ranked(hidet.dtypes.f32, (2, 3)), memoryview(held).cast("B"))
    assert np.shares_memory(made, held) and not made.flags.writeable


def test_one_element_for_all_is_not_written_out() -> None:
    text = module(
        "  %c = stablehlo.constant dense<2.0> : tensor<100000x100000xf32>\n"
        "  %s = stablehlo.slice %c [0:2, 0:3] : (tensor<100000x100000xf32>) -> tensor<2x3xf32>\n"
        "  %0 = stablehlo.add %x, %s : tensor<2x3xf32>\n  return %0 : tensor<2x3xf32>"
    )
    assert (hidet.stablehlo.compile(text)(np.ones((2, 3), np.float32)) == 3).all()


def test_an_error_names_the_place_in_the_text() -> None:
    with pytest.raises(ImportFailed) as error:
        hidet.stablehlo.compile(module("  %0 = stablehlo.add %x, %y : tensor<2x3xf32>"))
    assert "'%y' is no value that is made before" in str(error.value) and "<StableHLO>:2:" in str(error.value)


def test_an_error_names_the_place_in_the_model() -> None:
    text = unary('cholesky %x : tensor<2x3xf32> loc("solve"("model.py":7:3))', "tensor<2x3xf32>")
    with pytest.raises(UnsupportedOp, match=r"cholesky: model\.py:7:3 \(solve\)"):
        hidet.stablehlo.compile(text)
    (entry,) = hidet.stablehlo.check(text)
    assert (entry.operator, entry.places) == ("cholesky", ("model.py:7:3 (solve)",))


def test_a_custom_call_is_refused_by_name() -> None:
    text = unary("custom_call @my_kernel(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>", "tensor<2x3xf32>")
    with pytest.raises(UnsupportedOp, match="custom_call my_kernel"):
        hidet.stablehlo.compile(text)


HUGE = "tensor<2x3x99999999999999xf32>"
WRONG = {
    "no module": ("hello\nworld", "a function"),
    "an open brace": (module("  return %x : tensor<2x3xf32>").rstrip()[:-1], "is expected"),
    "a type that does not fit": (unary("tanh %x : tensor<7xf32>", "tensor<7xf32>"), "the file says"),
    "an axis that is none": (
        unary("transpose %x, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<3x2xf32>", "tensor<3x2xf32>"),
        "expected axes of a tensor of rank 2",
    ),
    "elements of another number": (
        unary("constant dense<[1.0, 2.0]> : tensor<2x3xf32>", "tensor<2x3xf32>"),
        "has 2 elements",
    ),
    "a function that calls itself": (
        module("  %0 = call @main(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>\n  return %0 : tensor<2x3xf32>"),
        "64 deep",
    ),
    "a huge tensor": (
        unary(f"broadcast_in_dim %x, dims = [0, 1] : (tensor<2x3xf32>) -> {HUGE}", HUGE),
        "no machine holds",
    ),
    "types in types": (module("  %0 = stablehlo.tanh %x : " + "(" * 5000), "nested too deeply"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name) -> None:
    text, message = WRONG[name]
    with pytest.raises(HidetError, match=message):
        hidet.stablehlo.compile(text)


def test_other_bytes_are_refused(tmp_path) -> None:
    for content, message in ((b"\xff\xfe\x00", "neither MLIR bytecode nor text"), (b"", "has no functions")):
        (tmp_path / "m.mlir").write_bytes(content)
        with pytest.raises(ImportFailed, match=message):
            hidet.compile(tmp_path / "m.mlir")
    with pytest.raises(ImportFailed, match="cannot be read"):
        hidet.compile(tmp_path / "missing.mlir")
