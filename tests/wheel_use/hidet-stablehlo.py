"""Run from an environment that has only hidet-stablehlo and what it needs: text of StableHLO is compiled and run where
jax is not installed, and functions ask for jax."""

import importlib.util
import pathlib

import numpy

import hidet
import hidet.jax
from hidet.errors import ImportFailed

assert importlib.util.find_spec("jax") is None
pathlib.Path("model.mlir").write_text(
    "func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {\n"
    "  %0 = stablehlo.tanh %x : tensor<?x2xf32>\n"
    "  return %0 : tensor<?x2xf32>\n"
    "}\n"
)
array = numpy.ones((3, 2), numpy.float32)
assert numpy.allclose(hidet.compile("model.mlir")(array), numpy.tanh(array), atol=1e-6)
try:
    hidet.jax.compile(numpy.tanh, array)
except ImportFailed as error:
    assert "hidet-stablehlo[jax]" in str(error), error
else:
    raise AssertionError("a function of jax was compiled without jax")
print("hidet-stablehlo compiles text, and asks for jax where functions are compiled")
