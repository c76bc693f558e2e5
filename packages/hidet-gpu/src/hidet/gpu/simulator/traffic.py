"""How well warps use memory: passes over the banks of shared memory, and sectors of global memory.

Shared memory has 32 banks of 4 bytes. A warp's access is served in parts of at most 128 bytes, and a part takes as many
passes as different words of one bank are in it. Global memory is moved in sectors of 32 bytes (CUDA C++ Best Practices
Guide, "Coalesced Access to Global Memory" and "Shared Memory and Memory Banks").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_BANKS = 32
_WORD = 4
_PART = 128
_SECTOR = 32


@dataclass(slots=True)
class Use:
    """What one statement needed, of passes or sectors, and the least that would do for the same bytes."""

    needed: int = 0
    least: int = 0


@dataclass(slots=True)
class Traffic:
    """Use of memory in a run, by the text of statements. Give one to `run_module` and read it after."""

    shared: dict[str, Use] = field(default_factory=dict)
    outside: dict[str, Use] = field(default_factory=dict)

    def conflicts(self) -> dict[str, Use]:
        """The statements whose accesses of shared memory meet in banks."""
        return {text: use for text, use in self.shared.items() if use.needed > use.least}

    def scattered(self) -> dict[str, Use]:
        """The statements that move more sectors of global memory than their bytes fill."""
        return {text: use for text, use in self.outside.items() if use.needed > use.least}

    def note(self, text: str, space: str, warps: Array, lanes: Array, starts: Array, nbytes: int) -> None:
        """Count accesses of `nbytes` at `starts` by lanes of warps, one entry a thread."""
        if space == "shared":
            use, counted = self.shared.setdefault(text, Use()), shared_passes(warps, lanes, starts, nbytes)
        else:
            use, counted = self.outside.setdefault(text, Use()), global_sectors(warps, starts, nbytes)
        use.needed += counted.needed
        use.least += counted.least


def shared_passes(warps: Array, lanes: Array, starts: Array, nbytes: int) -> Use:
    """Passes that one access of a block takes. Threads that read the same word share it."""
    per_part = max(1, min(_BANKS, _PART // nbytes))
    part = warps * _BANKS + lanes // per_part
    words = (starts // _WORD)[:, None] + np.arange(-(-nbytes // _WORD))
    touched = np.unique(np.stack([np.broadcast_to(part[:, None], words.shape).ravel(), words.ravel()]), axis=1)
    _, passes = np.unique(np.stack([touched[0], touched[1] % _BANKS]), axis=1, return_counts=True)
    banks = np.unique(np.stack([touched[0], touched[1] % _BANKS]), axis=1)
    parts, where = np.unique(banks[0], return_inverse=True)
    needed: Array = np.zeros(len(parts), np.int64)
    np.maximum.at(needed, where, passes)
    return Use(int(needed.sum()), len(parts))


def global_sectors(warps: Array, starts: Array, nbytes: int) -> Use:
    """Sectors that one access of a block moves, and how many its different bytes would fill."""
    reached = (starts // _SECTOR)[:, None] + np.arange(1 + (nbytes - 1) // _SECTOR)
    last = (starts + nbytes - 1) // _SECTOR
    reached = np.minimum(reached, last[:, None])
    pairs = np.unique(np.stack([np.broadcast_to(warps[:, None], reached.shape).ravel(), reached.ravel()]), axis=1)
    different = np.unique(np.stack([warps, starts]), axis=1)
    _, counts = np.unique(different[0], return_counts=True)
    return Use(pairs.shape[1], int((-(-counts * nbytes // _SECTOR)).sum()))
