"""Statements that print: which formats fit which values, and what is shown."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.errors import VerifyError
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_module
from hidet.ir.print_format import c_format, check_format, python_format
from hidet.ir.printer import print_module
from hidet.ir.types import PointerType, VectorType
from hidet.ir.verify import verify_module

f32, i32, i64, u8 = dtypes.f32, dtypes.i32, dtypes.i64, dtypes.u8

TEXT = r"""module(entry="main")

@host
def main(p: ~f32, n: i64):
    printf('%d: %5.2f %%\n', n, p[0])
"""


def test_printing_parses_back_and_is_verified():
    module = parse_module(TEXT)
    assert print_module(module) == TEXT
    verify_module(module)


def test_the_interpreter_prints(capsys):
    run_module(parse_module(TEXT), [np.array([1.5], np.float32), 7])
    assert capsys.readouterr().out == "7:  1.50 %\n"


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("no value", []),
        ("%d %i %u %x", [i32, i64, u8, i32]),
        ("%ld %lld %hhu", [i32, i64, u8]),
        ("%f %e %g %a %.3f", [f32, dtypes.f16, dtypes.f64, f32, dtypes.bf16]),
        ("100%%", []),
        ("%d", [dtypes.boolean]),
        ("%p", [PointerType(f32)]),
        ("%c", [u8]),
    ],
)
def test_formats_that_fit_are_accepted(text, types):
    check_format(text, types)


@pytest.mark.parametrize(
    ("text", "types", "problem"),
    [
        ("%d", [], "shows 1 values, got 0"),
        ("x", [i32], "shows 0 values, got 1"),
        ("%d", [f32], "%d in '%d' cannot show a value of type f32"),
        ("%f", [i32], "cannot show a value of type i32"),
        ("%s", [i32], "cannot show"),
        ("%n", [PointerType(i32)], "cannot show"),
        ("%", [i32], "cannot show"),
        ("%f", [VectorType(f32, 4)], "cannot show"),
        ("%*d", [i32], "cannot show"),
    ],
)
def test_formats_that_do_not_fit_are_refused(text, types, problem):
    with pytest.raises(VerifyError, match=problem):
        check_format(text, types)


def test_the_format_for_c_says_how_wide_values_are_passed():
    assert c_format("%d of %5.1f at %08x, 5%%, %c%p\n") == "%lld of %5.1f at %08llx, 5%%, %c%p\n"


def test_the_format_for_python_shows_the_same():
    assert python_format("%u|%5d|%-4x|%.2e|%%|%c", [3, -2, 255, 0.5, 65]) == "3|   -2|ff  |5.00e-01|%|A"
