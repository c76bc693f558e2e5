"""Types that Python makes of annotations before a script is read."""

import inspect

import pytest

from hidet.errors import DTypeError
from hidet.lang import f32, script


def with_text():
    @script
    def text(x: f32["a"]):  # noqa: F821  # no name, a text
        pass


def below_zero():
    @script
    def negative(y: f32[4], x: f32[-2]):
        pass


def with_a_fraction():
    @script
    def fraction(x: f32[2.5]):
        pass


def with_a_truth_value():
    kind = f32[4, True]
    return kind


@pytest.mark.parametrize(
    ("define", "extent", "line", "written"),
    [
        (with_text, "'a'", 2, 'f32["a"]'),
        (below_zero, "-2", 2, "f32[-2]"),
        (with_a_fraction, "2.5", 2, "f32[2.5]"),
        (with_a_truth_value, "True", 1, "f32[4, True]"),
    ],
)
def test_extents_that_are_none_are_refused_where_they_are_written(define, extent, line, written):
    with pytest.raises(DTypeError) as caught:
        define()
    lines, first = inspect.getsourcelines(define)
    error = caught.value
    assert error.message == f"f32[...] takes extents, got {extent}"
    assert error.loc.file == __file__
    assert error.loc.line == first + line
    assert error.loc.column == lines[line].index(written) + 1
    assert "an integer from 0 on" in error.hint
