"""Run where only hidet-cpu and what it needs are installed: compile a graph, run it, save it, and load it elsewhere."""

import subprocess
import sys

import numpy as np

import hidet
from hidet import dtypes
from hidet.context import make_context
from hidet.graph import GraphBuilder
from hidet.graph.types import TensorType

assert "site-packages" in hidet.cpu.__file__, hidet.cpu.__file__

random = np.random.default_rng(0)
x, weight = random.standard_normal((3, 20), np.float32), random.standard_normal((7, 20), np.float32)
builder = GraphBuilder(make_context("cpu").registry.operators)
product = builder.emit("linear", builder.input(TensorType(dtypes.f32, x.shape), "x"), builder.constant(weight))
compiled = hidet.compile(builder.build([builder.emit("relu", product)]), target="cpu")

expected = np.maximum(x @ weight.T, 0)
np.testing.assert_allclose(np.asarray(compiled(x)), expected, rtol=1e-5, atol=1e-5)

compiled.save("model.hidet")
np.savez("case.npz", x=x, expected=expected)
program = """
import sys
import numpy as np
import hidet
case = np.load("case.npz")
loaded = hidet.load("model.hidet")
np.testing.assert_allclose(np.asarray(loaded(case["x"])), case["expected"], rtol=1e-5, atol=1e-5)
parts = tuple(f"hidet.{part}" for part in ("passes", "schedule", "fusion", "host", "compiler"))
compiler = [name for name in sys.modules if name.startswith(parts)]
assert not compiler, f"running a saved graph imported the compiler: {compiler}"
"""
subprocess.run([sys.executable, "-I", "-c", program], check=True)
print("hidet-cpu compiles, runs, saves and loads")
