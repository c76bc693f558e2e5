"""Operators on strings, called as the host program calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import DTypeError, LaunchError, ShapeError, UnsupportedOp
from hidet.graph.types import TensorType

N = symbol("n")


@pytest.fixture(scope="session")
def call(operators: Any) -> Callable[..., Any]:
    """`call(name, *arrays, **attrs)`: what the host operator makes; its types fit the rule that infers them."""

    def run(name: str, *arrays: Any, **attrs: Any) -> Any:
        spec = operators[name]
        complete = spec.attrs(attrs)
        types = spec.infer([TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays], complete)
        made = spec.call(*arrays, attrs=complete)
        results = made if isinstance(made, tuple) else (made,)
        for array, type_ in zip(results, types, strict=True):
            assert array.dtype == type_.dtype.numpy()
            assert all(a == b for a, b in zip(array.shape, type_.shape, strict=True) if isinstance(b, int))
        return made

    return run


def strings(*items: Any) -> Any:
    return np.array(items, object)


def test_strings_are_joined_with_broadcasting(call: Any) -> None:
    assert call("string_concat", strings("a", "b"), np.array("ü", object)).tolist() == ["aü", "bü"]
    assert call("string_concat", strings(b"x"), strings("y")).tolist() == ["xy"]


def test_strings_are_compared_with_broadcasting(call: Any) -> None:
    assert call("string_equal", strings("a", "b"), strings("b")).tolist() == [False, True]


def test_a_match_is_one_of_the_whole_string(call: Any) -> None:
    assert call("regex_full_match", strings("a1", "a1b"), pattern=r"[a-z]\d").tolist() == [True, False]
    with pytest.raises(UnsupportedOp, match="pattern"):
        call("regex_full_match", strings("a"), pattern="(")


def test_pieces_of_split_strings_are_filled_up(call: Any) -> None:
    pieces, counts = call("string_split", strings("a,b,,c", "d"), delimiter=",", defines=(N,))
    assert pieces.tolist() == [["a", "b", "", "c"], ["d", "", "", ""]]
    assert counts.tolist() == [4, 1]
    pieces, counts = call("string_split", strings("  a  b c "), most=1, defines=(N,))
    assert pieces.tolist() == [["a", "b c "]] and counts.tolist() == [2]


def test_stop_words_are_left_out_and_case_is_changed(call: Any) -> None:
    words = strings("Monday", "tuesday", "MONDAY")
    attrs = {"stopwords": ("monday",), "defines": (N,)}
    assert call("string_normalize", words, case="upper", **attrs).tolist() == ["TUESDAY"]
    kept = call("string_normalize", words, is_case_sensitive=True, **attrs)
    assert kept.tolist() == words.tolist()
    assert call("string_normalize", strings("Monday"), **attrs).tolist() == [""]
    with pytest.raises(ShapeError, match=r"\[n\] or \[1, n\]"):
        call("string_normalize", strings(["a"], ["b"]), **attrs)


def test_keys_are_looked_up_and_nan_is_one(call: Any) -> None:
    found = call("lookup", strings("b", "z"), keys=("a", "b"), values=(1, 2), default=-1, dtype=dtypes.i64)
    assert found.tolist() == [2, -1]
    numbers = np.array([1.5, np.nan, 3.0], np.float32)
    attrs = {"keys": (1.5, float("nan")), "values": ("x", "y"), "default": "?", "dtype": dtypes.string}
    assert call("lookup", numbers, **attrs).tolist() == ["x", "y", "?"]
    with pytest.raises(ShapeError, match="1 keys and 2 values"):
        call("lookup", numbers, keys=(1,), values=(1, 2), default=0, dtype=dtypes.i64)


def test_strings_are_read_as_numbers(call: Any) -> None:
    assert call("string_to_number", strings("1.5", "-inf", "1e2"), dtype=dtypes.f32).tolist() == [1.5, -np.inf, 100]
    assert call("string_to_number", strings("12", "3.0"), dtype=dtypes.i8).tolist() == [12, 3]
    with pytest.raises(LaunchError, match="'x' is no int8"):
        call("string_to_number", strings("x"), dtype=dtypes.i8)
    with pytest.raises(DTypeError, match="real numbers"):
        call("string_to_number", strings("1"), dtype=dtypes.c64)


def test_numbers_are_written_so_that_they_read_back(call: Any) -> None:
    for dtype in (np.float32, np.float16, np.int64):
        numbers = np.array([0.1, 3, 250], dtype)
        texts = call("number_to_string", numbers)
        assert [dtype(text) for text in texts] == numbers.tolist() or (np.array(texts, dtype) == numbers).all()
    assert call("number_to_string", np.array([True, False])).tolist() == ["1", "0"]


def test_numbers_are_no_strings(call: Any) -> None:
    with pytest.raises(DTypeError, match="tensors of strings"):
        call("string_concat", strings("a"), np.array([1.0]))
