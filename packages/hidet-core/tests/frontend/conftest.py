"""An emitter of an empty graph."""

from __future__ import annotations

import pytest

from hidet.frontend import Emitter
from hidet.graph import GraphBuilder
from hidet.plugins.host import load_registry


@pytest.fixture
def e() -> Emitter:
    return Emitter(GraphBuilder(load_registry().operators))
