"""What every process of a run over the zoo begins with: imported once, by the process that the others are copies of.

Nothing here may touch a device.
"""

import importlib

from .torchvision_import import import_torchvision_models

import_torchvision_models()  # transformers imports torchvision by itself and has to find it working
for _name in ("torch._dynamo", "hidet.torch", "hidet.testing.numerics", "transformers.modeling_utils"):
    importlib.import_module(_name)
