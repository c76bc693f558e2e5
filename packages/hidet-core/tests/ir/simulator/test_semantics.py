"""Every intrinsic has a meaning."""

from hidet.ir.intrinsics import INTRINSICS, PREFIX
from hidet.ir.simulator.semantics import MEANINGS


def test_every_intrinsic_has_a_meaning_and_every_meaning_an_intrinsic():
    assert {name for name in MEANINGS if name.startswith(PREFIX)} == set(INTRINSICS)
