"""Functions with other attributes, operands and operators than TensorFlow wrote: a graph, or one clear error."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace
from typing import Any

import pytest

from hidet.context import make_context
from hidet.errors import HidetError
from hidet.tensorflow.functions import Library
from hidet.tensorflow.importer import import_model
from hidet.tensorflow.loader import LoadedModel, load_model

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")

COUNT = 150
SIZES = (-1, 0, 1, 2, 3, 7, 1 << 31, -(1 << 40), 1 << 62)
OPERATORS = ("MatMul", "Conv2D", "Reshape", "While", "TensorListStack", "Nothing")


@tf.function(input_signature=[tf.TensorSpec((None, 6))])
def everything(x: Any) -> Any:
    """Operators of all families."""
    image = tf.image.resize(x[None, ..., None], (5, 7))
    made = tf.nn.max_pool2d(tf.nn.conv2d(image, tf.ones((3, 3, 1, 4)), 1, "SAME"), 2, 2, "VALID")
    kept = tf.image.non_max_suppression(tf.abs(x[:, :4]), x[:, 0], 3)
    loop = tf.while_loop(lambda i, a: tf.reduce_sum(a) < 100.0, lambda i, a: (i + 1, a * 1.5 + 1), (0, x))
    rows = tf.map_fn(lambda row: tf.nn.softmax(row), x)
    best, places = tf.math.top_k(x, 2)
    waves = tf.abs(tf.signal.rfft(x))
    parts = tf.split(x, 2, axis=1), x[1:, None, ..., ::2], tf.one_hot(places, 3), tf.concat([x, x], 0)
    chosen = tf.cond(tf.reduce_sum(x) > 0, lambda: x @ tf.ones((6, 2)), lambda: tf.pad(x, [[0, 0], [0, -4 + 4]])[:, :2])
    return made, kept, loop, rows, best, waves, parts, chosen


def damaged(model: LoadedModel, rng: random.Random) -> LoadedModel:
    """The model with one to four changes in its functions."""
    library = type(model.main.library.proto)()
    library.CopyFrom(model.main.library.proto)
    main = type(model.main.proto)()
    main.CopyFrom(model.main.proto)
    functions = [main, *library.function]
    for _ in range(rng.choice((1, 1, 2, 4))):
        function = rng.choice([found for found in functions if found.node_def])
        node = rng.choice(function.node_def)
        kind = rng.random()
        if kind < 0.5 and node.attr:
            _change(node.attr[rng.choice(sorted(node.attr))], rng)
        elif kind < 0.7 and node.input:
            other = rng.choice(function.node_def)
            node.input[rng.randrange(len(node.input))] = rng.choice((*other.input, other.name, "x:y:z", "^x"))
        elif kind < 0.85 and node.input:
            del node.input[rng.randrange(len(node.input))]
        else:
            node.op = rng.choice((*OPERATORS, rng.choice(function.node_def).op))
    return replace(model, main=Library(library).read(main))


def _change(attribute: Any, rng: random.Random) -> None:
    kind = attribute.WhichOneof("value")
    if kind == "i":
        attribute.i = rng.choice(SIZES)
    elif kind == "f":
        attribute.f = rng.choice((0.0, -1.0, float("nan"), float("inf")))
    elif kind == "b":
        attribute.b = not attribute.b
    elif kind == "s":
        attribute.s = rng.choice((b"", b"NCHW", b"SAME", b"\xff"))
    elif kind == "type":
        attribute.type = rng.randrange(32)
    elif kind == "shape" and attribute.shape.dim:
        rng.choice(attribute.shape.dim).size = max(-1, rng.choice(SIZES))
    elif kind == "tensor" and attribute.tensor.int_val:
        attribute.tensor.int_val[0] = max(-(1 << 31), min(rng.choice(SIZES), (1 << 31) - 1))
    elif kind == "list" and attribute.list.i:
        attribute.list.i[rng.randrange(len(attribute.list.i))] = rng.choice(SIZES)
    elif kind == "func":
        attribute.func.name = "nothing"


def test_a_damaged_function_becomes_a_graph_or_one_clear_error() -> None:
    model, ctx = load_model(everything), make_context()
    assert import_model(model, ctx).graph.nodes
    refused = 0
    for seed in range(COUNT):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                import_model(damaged(model, random.Random(seed)), ctx)
            except HidetError as error:
                assert str(error)
                refused += 1
    assert COUNT // 4 < refused < COUNT
