"""Layer, RMS, group, instance and L2 normalisation, with element-wise operators fused before and after them."""

from __future__ import annotations

from typing import ClassVar

from hidet.cpu.schedules.row_rule import RowRule


class NormalizeRule(RowRule):
    """Schedules normalisations as their definitions say: each statistic is one pass over the row."""

    picoseconds: ClassVar[int] = 150
