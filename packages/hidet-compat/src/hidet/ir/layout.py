"""Layouts of tensors in scripts, by their names in hidet 0.6."""

from hidet.lang.layout import (
    ConcatLayout,
    ProductLayout,
    StridedLayout,
    SwizzledLayout,
    column_major,
    local_layout,
    row_major,
    strided,
    strided_layout,
)
from hidet.lang.layout import Layout as DataLayout

ComposedLayout = ProductLayout
StridesLayout = StridedLayout
SwizzleLayout = SwizzledLayout
row_layout = row_major
column_layout = column_major

__all__ = [
    "ComposedLayout",
    "ConcatLayout",
    "DataLayout",
    "StridesLayout",
    "SwizzleLayout",
    "column_layout",
    "column_major",
    "local_layout",
    "row_layout",
    "row_major",
    "strided",
    "strided_layout",
]
