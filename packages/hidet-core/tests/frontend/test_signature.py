"""Signatures of functions, from their parameters and the example they were captured with; names of foreign models."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from hidet.dims import bounds
from hidet.errors import ImportFailed
from hidet.frontend import SizeNames, form_of, identifier, signature_of_call
from hidet.runtime.signature import Entries, Fixed, GraphInput, Items


def numbered(leaves: list[str]):
    """Forms of leaves as inputs in order, whose places are noted."""

    def leaf(value: object, place: str) -> GraphInput:
        leaves.append(place)
        return GraphInput(len(leaves) - 1)

    return leaf


def test_containers_of_an_example_become_forms() -> None:
    leaves: list[str] = []
    x = np.ones(2)
    form = form_of({"h": [x, (x, 3)], 0: None, "w": x}, numbered(leaves), "state")
    assert leaves == ["state['h'][0]", "state['h'][1][0]", "state['w']"]
    assert form == Entries(
        (
            ("h", Items((GraphInput(0), Items((GraphInput(1), Fixed(3)))))),
            (0, Fixed(None)),
            ("w", GraphInput(2)),
        )
    )


def test_a_key_that_no_artifact_holds_is_refused() -> None:
    with pytest.raises(ImportFailed, match=r"state\[0\] has the key \(1, 2\): expected texts and whole numbers"):
        form_of([{(1, 2): 0}], numbered([]), "state")


def _model(x, y=None, *rest, scale=2.0, table=(), **named): ...


def test_a_signature_takes_what_the_example_gave_and_fixes_the_rest() -> None:
    declared = list(inspect.signature(_model).parameters.values())
    forms = [GraphInput(0), Fixed(None), GraphInput(1)]
    signature = signature_of_call(declared, forms, {"bias": GraphInput(2)}, tensor_type="t.T", size_hint="fixed")
    assert [parameter.name for parameter in signature.parameters] == ["x", "y", "rest[0]", "scale", "bias"]
    assert [parameter.is_optional for parameter in signature.parameters] == [False, True, False, True, False]
    assert (signature.positional, signature.tensor_type, signature.size_hint) == (3, "t.T", "fixed")
    assert signature.arranged(["x", None, "r"], {"bias": "b", "scale": 2.0}, 3) == ["x", "r", "b"]
    assert len(forms) == 3


def test_what_follows_a_default_that_cannot_be_passed_is_passed_by_name() -> None:
    declared = inspect.signature(lambda x, table=(), y=1: x).parameters.values()
    signature = signature_of_call(declared, [GraphInput(0)], {})
    assert [parameter.name for parameter in signature.parameters] == ["x", "y"]
    assert signature.positional == 1


def test_equal_names_of_sizes_are_one_symbol_and_unnamed_sizes_are_none() -> None:
    sizes = SizeNames()
    batch = sizes.named("batch")
    assert sizes.named("batch") is batch
    assert bounds(batch) == (1, None)
    assert [str(size) for size in (batch, sizes.fresh("batch"), sizes.named("2 x"), sizes.fresh(""))] == [
        "batch",
        "batch_2",
        "_2_x",
        "size",
    ]


def test_foreign_names_become_identifiers() -> None:
    assert [identifier(name) for name in ("layer.0/x", "0", b"a\xff", "")] == ["layer_0_x", "_0", "a_", ""]
