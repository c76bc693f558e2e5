"""What the callable of a model takes, and the inputs of its graph in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet.errors import ArtifactError, ImportFailed, LaunchError
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.runtime.encoding import decode_signature, encode_signature
from hidet.runtime.signature import (
    Entries,
    Fixed,
    GraphInput,
    GraphOutput,
    Items,
    ModelGraph,
    Parameter,
    Signature,
    returned,
    signature_of_inputs,
)

NESTED = Signature(
    (
        Parameter("x", GraphInput(1)),
        Parameter("cache", Items((Entries((("k", GraphInput(0)), (2, GraphInput(None)))), Fixed(None)))),
        Parameter("mode", Fixed("fast"), is_optional=True),
    ),
    positional=2,
    tensor_type="torch.Tensor",
    results=Entries(
        (
            ("made", GraphOutput(1)),
            ("rest", Items((GraphOutput(0), Fixed(None)), is_list=True)),
            ("pair", Items((GraphOutput(1), GraphOutput(0)))),
        )
    ),
)


def test_inputs_are_found_in_containers_in_the_order_of_the_graph() -> None:
    assert NESTED.arranged(["x", [{"k": "k", 2: "any"}, None]], {"mode": "fast"}, 2) == ["k", "x"]
    assert NESTED.arranged([], {"cache": ({"k": "k", 2: "any"}, None), "x": "x"}, 2) == ["k", "x"]


def test_inputs_are_named_by_their_places_in_the_call() -> None:
    assert NESTED.places(2) == ["argument 1 (cache[0]['k'])", "argument 0 (x)"]


def test_a_graph_is_called_with_its_inputs_in_order_or_by_name() -> None:
    signature = signature_of_inputs(["a", "b"])
    assert signature.direct(2) == 2
    assert signature.arranged([1], {"b": 2}, 2) == [1, 2]


@pytest.mark.parametrize(
    ("parameters", "direct"),
    [
        ((Parameter("a", GraphInput(0)), Parameter("k", Fixed(3), is_optional=True)), 1),
        ((Parameter("a", GraphInput(0)), Parameter("k", Fixed(3))), -1),
        ((Parameter("a", GraphInput(None)), Parameter("b", GraphInput(0))), -1),
        ((Parameter("a", Items((GraphInput(0),))),), -1),
    ],
)
def test_arguments_that_are_the_inputs_already_are_known_by_their_number(
    parameters: tuple[Parameter, ...], direct: int
) -> None:
    assert Signature(parameters, len(parameters)).direct(1) == direct


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["x", [{"k": "k", 2: "any"}, 0]], r"argument 1 \(cache\[1\]\) was fixed to None .* got 0"),
        (["x", {"k": "k"}], r"argument 1 \(cache\) is a dict with the keys \['k'\], expected a list or tuple of 2"),
        (["x", ["k", None]], r"argument 1 \(cache\[0\]\) is 'k', expected a mapping with the keys \['k', 2\]"),
        (["x"], r"argument 1 \(cache\) is missing: the compiled graph takes \(x, cache, mode\)"),
        (["x", "cache", "fast"], r"takes 2 arguments by position \(x, cache, mode\), got 3"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(given: list[object], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        NESTED.arranged(given, {}, 2)


def test_a_signature_comes_back_from_json() -> None:
    assert decode_signature(json.loads(json.dumps(encode_signature(NESTED)))) == NESTED
    assert decode_signature(encode_signature(None)) is None
    with pytest.raises(ArtifactError, match="signature in the artifact is malformed"):
        decode_signature([[["x", ["input"], False]], 1, ""])


def test_results_are_returned_as_the_model_does() -> None:
    assert NESTED.results is not None
    assert returned(NESTED.results, ["a", "b"]) == {"made": "b", "rest": ["a", None], "pair": ("b", "a")}


def test_a_compiled_model_returns_its_structure_also_after_saving(tmp_path: Path) -> None:
    text = "graph g(%x: f32[n]):\n  %0: f32[n] = exp(%x)\n  %1: f32[n] = neg(%x)\n  return %0, %1"
    graph = parse_graph("symbol n: 1..\n" + text, load_registry().operators)
    results = Entries((("neg", GraphOutput(1)), ("exp", Items((GraphOutput(0),)))))
    model = ModelGraph(graph, Signature((Parameter("x", GraphInput(0)),), 1, results=results))
    compiled = hidet.compile(model)
    compiled.save(tmp_path / "model.hidet")
    for call in (compiled, hidet.load(tmp_path / "model.hidet")):
        made = call(x=np.zeros(3, np.float32))
        assert made["neg"].tolist() == [0, 0, 0] and made["exp"][0].tolist() == [1, 1, 1]


def test_an_imported_model_says_itself_what_its_inputs_are() -> None:
    graph = parse_graph("graph g(%x: f32[3]):\n  %0: f32[3] = exp(%x)\n  return %0", load_registry().operators)
    model = ModelGraph(graph, signature_of_inputs(["x"]))
    with pytest.raises(ImportFailed, match="it says what its inputs are"):
        hidet.compile(model, shapes={"x": (4,)})
