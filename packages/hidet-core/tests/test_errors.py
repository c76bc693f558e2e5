"""Errors say what, where and what to do; places render with the source line."""

from __future__ import annotations

import copy
import pickle

import pytest

from hidet import errors
from hidet.errors import HidetError, HidetWarning, ShapeError, nearest_names, suggestion
from hidet.loc import Loc


def test_an_error_renders_message_place_and_hint(tmp_path) -> None:
    source = tmp_path / "model.py"
    source.write_text("x = 1\n\ty = fc1(x)\n")
    loc = Loc(str(source), 2, 6, "fc1")
    error = ShapeError("matmul: 3 columns against 4 rows", loc=loc, hint="transpose b")
    assert str(error).splitlines() == [
        "matmul: 3 columns against 4 rows",
        f"  at {source}:2:6 (fc1)",
        "    2 | \ty = fc1(x)",
        "      | \t    ^",
        "hint: transpose b",
    ]


def test_an_error_without_place_and_hint_is_its_message() -> None:
    assert str(HidetError("something")) == "something"


def test_a_place_without_readable_source_is_one_line_a_parent() -> None:
    loc = Loc("gone.py", 7, parent=Loc(name="encoder.fc1"))
    assert loc.render() == "  at gone.py:7\n  from encoder.fc1"


@pytest.mark.parametrize("column", [None, 0, 99])
def test_a_column_that_is_not_on_the_line_draws_no_caret(tmp_path, column) -> None:
    source = tmp_path / "model.py"
    source.write_text("x = 1\n")
    assert "^" not in Loc(str(source), 1, column).render()


def test_an_empty_place_says_so() -> None:
    assert str(Loc()) == "unknown place"


def test_errors_survive_copying_and_pickling_between_processes() -> None:
    error = ShapeError("bad", loc=Loc("m.py", 3), hint="fix it")
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is ShapeError and str(twin) == str(error)


def test_every_public_exception_is_documented_and_derives_from_one_of_two_bases() -> None:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    public = [value for value in found if not value.__name__.startswith("_")]
    assert len(public) > 15
    for value in public:
        assert value.__doc__
        assert issubclass(value, HidetWarning if value.__name__.endswith("Warning") else HidetError)


def test_every_error_is_caught_as_a_runtime_error() -> None:
    """defects.md D1: `except RuntimeError` around a model catches what its compiled call raises, too."""
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, HidetError)]
    assert len(found) > 15
    assert all(issubclass(value, RuntimeError) for value in found)


def test_nearest_names_ignores_the_unlike() -> None:
    assert nearest_names("matmull", ["matmul", "bmm", "softmax"]) == ["matmul"]
    assert nearest_names("zzz", ["matmul"]) == []


def test_suggestion_lists_what_is_known_when_nothing_is_near() -> None:
    assert suggestion("zzz", ["b", "a"]) == "known: a, b"
    assert suggestion("zzz", [f"n{i:02}" for i in range(20)], limit=2) == "known: n00, n01, ... (20 in all)"
    assert suggestion("zzz", []) == "none is known"
