"""Run where only hidet-script and what it needs are installed: a script is translated, and numpy runs its thread IR."""

import numpy as np

import hidet
from hidet.ir.interpret import run_module
from hidet.lang import f32

assert "site-packages" in hidet.lang.__file__, hidet.lang.__file__

with hidet.script_module() as module:

    @hidet.script
    def double(x: f32[4]):
        for i in range(4):
            x[i] = x[i] * 2.0


x = np.arange(4, dtype=np.float32)
run_module(module.ir_module(), [x])
assert x.tolist() == [0, 2, 4, 6]

try:
    hidet.lang.cuda.threadIdx  # noqa: B018 - the attribute is what is tested
except hidet.HidetError as error:
    assert error.hint == "pip install hidet-cuda", error
print("hidet-script translates scripts")
