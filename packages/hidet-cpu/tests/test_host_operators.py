"""Compiled graphs with sequences and strings, which numpy computes on the host, saved and loaded."""

import subprocess
import sys

import numpy as np
import pytest

import hidet
from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.errors import ArtifactError
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import SequenceType

F32 = dtypes.f32


@pytest.fixture(scope="module")
def ctx():
    return make_context("cpu", {"cache": False, "threads": 1})


def words(*items):
    return np.array(items, object)


def spelled_numbers(ctx):
    """The number that each word of the input names, and the words, both with a constant tail."""
    b = GraphBuilder(ctx.registry.operators)
    x = b.input(TensorType(dtypes.string, (3,)), "words")
    tails = b.constant(words("e", "", b"o"))
    spelled = b.emit("string_concat", x, tails)
    numbers = b.emit("lookup", spelled, keys=("one", "two"), values=(1.0, 2.0), default=-1.0, dtype=F32)
    return b.build([b.emit("mul", numbers, b.constant(2, F32)), spelled])


def every_other_row(ctx):
    """Rows 0 and 2 of the input, doubled, taken from the sequence of its rows."""
    b = GraphBuilder(ctx.registry.operators)
    x = b.input(TensorType(F32, (3, 4)), "x")
    row = TensorType(F32, (1, 4))
    rows = b.emit("split_to_sequence", b.emit("add", x, x), axis=0, type=SequenceType(row))
    taken = [b.emit("sequence_at", rows, b.constant(n), type=row) for n in (0, -1)]
    pair = b.emit("sequence_construct", *taken, type=SequenceType(row))
    count = b.fresh_size(1)
    joined = b.emit("concat_from_sequence", pair, axis=0, type=TensorType(F32, (count, 4)), defines=(count,))
    return b.build([b.emit("neg", joined), b.emit("sequence_length", pair)])


def test_strings_are_saved_and_loaded(ctx, tmp_path):
    compile_graph(spelled_numbers(ctx), ctx).save(tmp_path / "words.hidet")
    numbers, spelled = hidet.load(tmp_path / "words.hidet")(words("on", "two", "tw"))
    assert numbers.tolist() == [2.0, 4.0, 4.0]
    assert spelled.tolist() == ["one", "two", "two"]


def test_strings_are_read_wherever_they_lie(ctx):
    compiled = compile_graph(spelled_numbers(ctx), ctx)
    every_second = words("on", "x", "two", "x", "tw", "x")[::2]
    for _ in range(20):
        _, spelled = compiled(every_second)
        assert spelled.tolist() == ["one", "two", "two"]


def test_sequences_are_saved_and_loaded(ctx, tmp_path):
    compile_graph(every_other_row(ctx), ctx).save(tmp_path / "rows.hidet")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    rows, count = hidet.load(tmp_path / "rows.hidet")(x)
    np.testing.assert_array_equal(rows, -2 * x[::2])
    assert count == 2


def test_host_operators_are_found_without_the_compiler(ctx, tmp_path):
    compile_graph(every_other_row(ctx), ctx).save(tmp_path / "rows.hidet")
    script = (
        "import sys, numpy, hidet\n"
        f"hidet.load({str(tmp_path / 'rows.hidet')!r})(numpy.ones((3, 4), numpy.float32))\n"
        "compiler = ('torch', 'hidet.passes', 'hidet.schedule', 'hidet.cpu.codegen')\n"
        "print([m for m in sys.modules if m.startswith(compiler)])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def shouted(name):
    def shout(x, *, attrs):
        return np.array([item.upper() + attrs["mark"] for item in x], object)

    return OperatorSpec(
        name=name,
        inputs=("x",),
        attributes=(Attribute("mark"),),
        kind="host",
        infer=lambda types, attrs: types,
        call=shout,
        doc="Words in capitals.",
    )


def test_a_host_operator_that_is_not_installed_is_named(ctx, tmp_path):
    b = GraphBuilder(ctx.registry.operators)
    x = b.input(TensorType(dtypes.string, (2,)), "words")
    compiled = compile_graph(b.build([b.emit(shouted("acme.shout"), x, mark="!")]), ctx)
    assert compiled(words("a", "b")).tolist() == ["A!", "B!"]
    compiled.save(tmp_path / "loud.hidet")
    with pytest.raises(ArtifactError, match=r"runs operator acme\.shout on the host, which no installed plug-in has"):
        hidet.load(tmp_path / "loud.hidet")


def test_attributes_of_host_operators_come_back_as_they_were():
    from hidet.graph.attrs import Attrs
    from hidet.graph.types import DimType, OptionalType
    from hidet.runtime.attribute_json import decode_attrs, encode_attrs

    rows = dims.symbol("rows", 1)
    types = (TensorType(F32, (rows, 2), (1, rows)), DimType(rows), OptionalType(SequenceType(TensorType(F32, (2,)))))
    attrs = Attrs({"a": 1, "b": 1.0, "c": True, "d": None, "e": "x", "f": (1, (2.5, "y")), "g": F32, "h": types})
    again = decode_attrs(encode_attrs(attrs, str), lambda text: dims.parse_dim(text, {"rows": dims.symbols(rows)[0]}))
    assert again == attrs
    with pytest.raises(ArtifactError, match="an attribute of type object cannot be saved"):
        encode_attrs({"x": object()}, str)
