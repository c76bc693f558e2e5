"""A barrier of all blocks of a cooperative launch."""

# Types of scripts are no types of Python.
# mypy: disable-error-code="valid-type, no-untyped-def, assignment"

from hidet.gpu.lang.rows import find_row
from hidet.lang.function import translate
from hidet.lang.types import kind_named

_u32 = kind_named("u32")
_thread, _block, _blocks = (find_row(f"gpu.{name}") for name in ("thread_idx", "block_idx", "grid_dim"))
_syncthreads, _add_release = find_row("gpu.syncthreads"), find_row("gpu.atomic_add_release")
_load_acquire = find_row("gpu.load_acquire")

_TURN = 1 << 31
"""What the counter grows by while all blocks come: its highest bit turns with the last, however often it is used."""


def sync_grid(arrived: ~_u32):
    """Wait until all threads of all blocks have come, and see what they wrote before.

    arrived: an element of global memory for this alone, 0 when the kernel starts; launches in a row may use it again.
    The kernel needs `attrs.cuda.cooperative = True`.
    """
    _syncthreads()
    if _thread.x == 0 and _thread.y == 0 and _thread.z == 0:
        step: _u32 = 1
        blocks: _u32 = _blocks.x * _blocks.y * _blocks.z
        if _block.x == 0 and _block.y == 0 and _block.z == 0:
            step = (_TURN + 1) - blocks
        before = _add_release(arrived, step)
        while (_load_acquire(arrived) ^ before) & _TURN == 0:
            pass
    _syncthreads()


# Not by `hidet.script`, which would put it into the module that a user fills when this file is imported.
sync_grid = translate(sync_grid, None)
