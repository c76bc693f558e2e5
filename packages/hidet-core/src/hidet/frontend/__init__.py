"""The kit for front-ends: what importers of foreign models share. `docs/frontends.md` shows it by example.

    emitter.py    `Emitter`: what handlers of foreign operators write graphs with
    contents.py   `Contents`: elements of tensors that say shapes and axes, followed to constants and sizes
    needed.py     errors for elements that must be known, and the inputs that they come from
    handlers.py   handlers of plug-ins, beside a front-end's own table
    names.py      foreign names as identifiers, and as symbols of open sizes
    signature.py  how a model's callable is called, and values for its inputs
    measured.py   shapes and positions that data decide, read back while the model runs
    loops.py      types of values that loops carry
    branches.py   decisions that are known, and what sub-graphs read from around them
    contraction.py  einsum: sums of products by index letters
    recurrent.py  the steps of a recurrent layer
    translate.py  errors of a foreign node, inputs that are given as arrays

Nothing here knows a framework.
"""

from importlib import import_module

from hidet.frontend.contents import Contents
from hidet.frontend.contraction import einsum
from hidet.frontend.emitter import Emitter, NodeFacts, Number
from hidet.frontend.handlers import Handler, Rows, handlers_of_families, plugin_handlers
from hidet.frontend.names import SizeNames, identifier
from hidet.frontend.needed import in_branch
from hidet.frontend.recurrent import run_steps
from hidet.frontend.signature import arrays_by_name, form_of, signature_of_call

__all__ = [
    "Contents",
    "Emitter",
    "Handler",
    "NodeFacts",
    "Number",
    "Rows",
    "SizeNames",
    "arrays_by_name",
    "einsum",
    "form_of",
    "handlers_of_families",
    "identifier",
    "in_branch",
    "plugin_handlers",
    "run_steps",
    "signature_of_call",
]


def __getattr__(name: str) -> object:
    # What plug-ins add.
    return import_module("hidet.plugins.attributes").find("hidet.frontend", name)
