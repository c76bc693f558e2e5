"""What torch asks about symbolic sizes while it traces, by private names of torch (`compat.py`).

Each answer becomes a guard: where it is another one, the graph is compiled again.
"""

from __future__ import annotations

import operator
from importlib import import_module
from typing import Any

import torch


def leave_pools_unguarded() -> None:
    """Let torch give the size of a pool's result without a guard on the remainder of a division.

    Before 2.13 it asks whether there is one, for a quotient that Python rounds down anyway: a network with a pool was
    compiled for even and for odd sizes.
    """
    if torch.__version__ < "2.13":  # compared as versions
        sizes: Any = import_module("torch._meta_registrations")
        sizes.div_rtn = operator.floordiv
