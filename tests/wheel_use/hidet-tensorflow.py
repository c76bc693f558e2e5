"""Run from an environment that has only hidet-tensorflow and what it needs: without TensorFlow, its plug-in is found,
knows its models by their paths, and says what is missing."""

import pathlib

import hidet
from hidet.errors import ImportFailed
from hidet.plugins.host import load_registry

record = next(record for record in load_registry().plugins if record.owner.plugin == "tensorflow")
assert not record.problems, record.problems
pathlib.Path("model.keras").touch()
try:
    hidet.compile("model.keras")
except ImportFailed as error:
    assert "pip install tensorflow" in str(error), error
else:
    raise AssertionError("a model was imported without TensorFlow")
print("hidet-tensorflow is found, and asks for TensorFlow")
