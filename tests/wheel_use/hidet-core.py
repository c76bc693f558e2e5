"""Run in an environment that holds only the hidet-core wheel: framework and command work, satellites are offered."""

import subprocess
import sys
from pathlib import Path

import hidet

assert "site-packages" in hidet.__file__, hidet.__file__
assert not {"numpy", "pluggy"} & set(sys.modules)

try:
    hidet.torch  # noqa: B018 - the attribute is what is tested
except AttributeError as error:
    assert str(error) == "hidet.torch is not installed: pip install hidet-torch", error
else:
    raise AssertionError("hidet.torch must not be importable from hidet-core alone")

try:
    from hidet import script
except hidet.HidetError as error:
    assert error.hint == "pip install hidet-script", error
else:
    raise AssertionError(f"{script} must not be importable from hidet-core alone")

command = Path(sys.executable).with_name("hidet")
listed = subprocess.run([str(command), "plugins"], capture_output=True, text=True, check=True).stdout
assert "hidet-core" in listed and "hidet-cpu" not in listed, listed
subprocess.run([str(command), "doctor"], check=True)
print(f"hidet-core {hidet.__version__} works alone")
