"""Run from an environment that has only hidet-gpu and what it needs: a launch of threads is simulated."""

import numpy as np

from hidet.gpu.testing.launches import run_kernel

out = np.zeros(64, np.float32)
run_kernel("out[b * 32 + t] = cast(b * 100 + t, f32)", "out: f32[64]", [out], grid=(2,))
assert out.tolist() == [*range(32), *range(100, 132)]
print("hidet-gpu simulates launches")
