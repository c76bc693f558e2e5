"""Compiled programs print what the interpreter prints."""

import ctypes

import numpy as np

from hidet.cpu.target import CpuTarget
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_module
from hidet.target import CompileJob

TEXT = r"""module(entry="print_main")

@host
def print_main(p: ~f32, h: ~f16, n: i64):
    printf('é "quoted" \\ 100%%\n')
    for i in range(n):
        printf('%d %5.2f %g %x %d\n', i, p[i], h[0], u8(255), i < 1)
"""


def test_numbers_of_every_width_are_printed(capfd):
    module = parse_module(TEXT)
    values = np.array([1.5, -2.25], np.float32), np.array([0.5], np.float16)
    run_module(module, [*values, 2])
    expected = capfd.readouterr().out
    target = CpuTarget()
    code = target.load(target.compile([CompileJob("print_main", module, effort=1)]))
    types = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    ctypes.CFUNCTYPE(None, *types)(code.address("print_main"))(None, *(v.ctypes.data for v in values), 2)
    assert capfd.readouterr().out == expected
    assert expected.splitlines()[1:] == ["0  1.50 0.5 ff 1", "1 -2.25 0.5 ff 0"]
