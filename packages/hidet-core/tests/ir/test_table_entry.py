"""Functions called through a table of 8-byte cells."""

import numpy as np
import pytest

from hidet.errors import VerifyError
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
from hidet.ir.table_entry import with_table_entries
from hidet.ir.verify import verify_module

TEXT = """module(entry="scale")

@host
def scale(x: f32[4], factor: f32, n: i32):
    for i in range(cast(n, i64)):
        x[i] = x[i] * factor

@device(export=True)
def twice(a: i32) -> i32:
    return a + a
"""


def test_entries_read_cells_in_the_types_of_parameters():
    module, names = with_table_entries(parse_module(TEXT))
    verify_module(module)
    assert names == {"scale": "call_scale", "twice": "call_twice"}
    assert module.entry == "call_scale"
    text = print_module(module)
    assert 'invoke("scale", [bitcast(table[0], ~f32), load(bitcast(address(table, 1), ~f32), [0]), ' in text


def test_calls_through_a_table_do_what_the_functions_do():
    module, names = with_table_entries(parse_module(TEXT))
    x = np.arange(4, dtype=np.float32)
    table = np.zeros(3, np.int64)
    table[0] = x.ctypes.data
    table.view(np.float32)[2] = 2.0
    table.view(np.int32)[4] = 3
    run_module(module, [table], entry=names["scale"], reachable=[x])
    assert x.tolist() == [0, 2, 4, 3]
    table.view(np.int32)[0] = -21
    run_module(module, [table], entry=names["twice"])
    assert table.view(np.int32)[2] == -42


def test_names_that_are_taken_are_avoided():
    taken = TEXT.replace("twice", "call_scale")
    assert with_table_entries(parse_module(taken))[1]["scale"] == "call_scale_"


def test_vectors_do_not_fit_into_a_cell():
    module = parse_module('module(entry="main")\n\n@host\ndef main(v: f32x4):\n    pass\n')
    with pytest.raises(VerifyError, match="value of type f32x4 is not passed"):
        with_table_entries(module)
