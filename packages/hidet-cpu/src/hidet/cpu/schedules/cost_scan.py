"""How long a scan takes as chosen: a model in seconds, from sizes alone.

Along rows a step of several rows takes as long as their additions do, or waits for those of the step before. Across
rows a tile of vectors has its running values in memory; rows that fill no tile are scanned a vector at a time, and the
last ones in part of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass

from hidet.cpu.schedules.cost_items import shared_seconds
from hidet.target.constants import DeviceConstants

# Cycles of an element along a row: at least, and what all rows of a step wait for together, of which some is shared.
_ELEMENT, _OWN, _CHAIN = 1.55, 0.75, 2.0
# Cycles of a step across rows: of a tile, of each vector of it, and of a part of a vector.
_STEP, _VECTOR, _PART = 2.6, 5.2, 8.0


@dataclass(frozen=True, slots=True)
class ScanExtents:
    """Rows that are scanned, elements of each, and bytes that are read and written. lanes: of a vector, where rows lie
    side by side; 0 to go along rows."""

    rows: int
    length: int
    nbytes: int
    lanes: int


def scan_seconds(
    extents: ScanExtents, item_elements: int, together: int, constants: DeviceConstants, threads: int
) -> float:
    """Seconds of a scan whose work items have about `item_elements` elements. together: rows, or vectors of rows, whose
    steps are interleaved."""
    rows, beside = extents.rows, together * max(1, extents.lanes)
    of_item = -(-max(1, item_elements // extents.length) // beside) * beside
    items = -(-rows // of_item)
    if extents.lanes:
        tiles, left = divmod(rows, beside)
        vectors, part = divmod(left, extents.lanes)
        cycles = tiles * (_STEP + together * _VECTOR) + vectors * (_STEP + _VECTOR) + (_PART if part else 0.0)
    else:
        whole = rows // together * together
        cycles = whole * _row_cycles(together) + (rows - whole) * _row_cycles(1)
    return shared_seconds(cycles * extents.length * constants.cycle, extents.nbytes, items, constants, threads)


def _row_cycles(together: int) -> float:
    """Of an element of rows that are scanned together."""
    return max(_ELEMENT, _OWN + _CHAIN / together)
