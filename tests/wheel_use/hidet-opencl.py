"""Run from an environment that has only hidet-opencl and what it needs: its plug-in is found, and says what to install
where there is no platform."""

import numpy as np

import hidet
from hidet.errors import LaunchError
from hidet.opencl.devices import find_device
from hidet.plugins.host import load_registry

record = next(record for record in load_registry().plugins if record.owner.plugin == "opencl")
problems = [problem for problem in record.problems if not problem.is_remark]
assert not problems, problems


@hidet.script
def twice(x: hidet.lang.f32[8]):
    for i in range(8):
        x[i] = x[i] * 2.0


try:
    print(f"hidet-opencl is found, and so is {find_device(None)}")
except LaunchError as error:
    assert "no OpenCL device" in error.message and "pip install" in str(error), error
    print("hidet-opencl is found, and says what to install")
x = np.ones(8, np.float32)
twice(x)
assert x.tolist() == [2.0] * 8, "the host's target is there as well"
