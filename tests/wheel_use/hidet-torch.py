"""Run where hidet-torch was installed from its wheel: torch finds the backend without any import of hidet."""

import importlib.util
import sys

import torch

# NVIDIA has drivers for these; what is installed for them costs nothing where there is none.
assert (importlib.util.find_spec("hidet.cuda") is not None) == (sys.platform in ("linux", "win32"))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.GELU(), torch.nn.LayerNorm(40), torch.nn.Linear(40, 3))
model.eval()
x = torch.randn(5, 20)
assert "hidet" in torch._dynamo.list_backends(), torch._dynamo.list_backends()

with torch.no_grad():
    compiled = torch.compile(model, backend="hidet", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
LIGHT = {"hidet.cuda._plugin", "hidet.cuda.intrinsic_families"}
assert not [name for name in sys.modules if name.startswith("hidet.cuda.") and name not in LIGHT]
print("torch.compile(backend='hidet') works from wheels")
