"""A step of a small llama writes the new rows of its key-value cache and no other byte of it.

Every row of the caches is a page of memory. Before the compiled step runs, all pages but those of the new rows are
made read-only, so that a write anywhere else, even of the value that is there, ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

PAGE = mmap.PAGESIZE
WIDTH = 32
HEAD_WIDTH = PAGE // 4  # one row of one head is one page of float32
HEADS, CACHE_HEADS, LAYERS, LENGTH, POSITION = 2, 1, 2, 8, 5
ROWS_WRITTEN = LAYERS * 2 * CACHE_HEADS  # keys and values


class Layer(nn.Module):
    """Rotary grouped-query attention over a cache, and a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD_WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, CACHE_HEADS * HEAD_WIDTH, bias=False)
        self.v = nn.Linear(WIDTH, CACHE_HEADS * HEAD_WIDTH, bias=False)
        self.o = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.before, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        """x[1, 1, WIDTH]; keys and values [1, CACHE_HEADS, LENGTH, HEAD_WIDTH] are updated at `position`."""
        hidden = self.before(x)
        q = _rotated(self.q(hidden).view(1, HEADS, 1, HEAD_WIDTH), position)
        k = _rotated(self.k(hidden).view(1, CACHE_HEADS, 1, HEAD_WIDTH), position)
        v = self.v(hidden).view(1, CACHE_HEADS, 1, HEAD_WIDTH)
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        seen = (torch.arange(LENGTH) <= position)[None, None, None]
        mixed = functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True)
        x = x + self.o(mixed.reshape(1, 1, HEADS * HEAD_WIDTH))
        hidden = self.after(x)
        result: torch.Tensor = x + self.down(functional.silu(self.gate(hidden)) * self.up(hidden))
        return result


def _rotated(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    angles = position * 10000.0 ** (-torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (angles.cos(), angles.sin()))
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Llama(nn.Module):
    """The layers; the caches are updated in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor, caches: list[torch.Tensor], position: torch.Tensor) -> torch.Tensor:
        """One token."""
        for layer, keys, values in zip(self.layers, caches[::2], caches[1::2], strict=True):
            x = layer(x, keys, values, position)
        return x


def _guarded_step() -> None:
    """Run in a process of its own, because a write to a guarded page ends it."""
    torch.manual_seed(0)
    model, x, position = Llama().eval(), torch.randn(1, 1, WIDTH), torch.tensor([POSITION])
    shape = (1, CACHE_HEADS, LENGTH, HEAD_WIDTH)
    memory = [mmap.mmap(-1, CACHE_HEADS * LENGTH * PAGE) for _ in range(2 * LAYERS)]
    caches = [torch.frombuffer(block, dtype=torch.float32).view(shape) for block in memory]
    for cache in caches:
        cache.normal_()
    before = [cache.clone() for cache in caches]
    expected = [cache.clone() for cache in caches]
    compiled = torch.compile(model, backend="hidet", fullgraph=True, options={"strict": True})
    with torch.no_grad():
        reference = model(x, expected, position)
        compiled(x, [cache.clone() for cache in caches], position)
        for cache in caches:
            _protect(cache)
        result = compiled(x, caches, position)
    torch.testing.assert_close(result, reference, rtol=1e-4, atol=1e-4)
    rows = 0
    for cache, old, new in zip(caches, before, expected, strict=True):
        torch.testing.assert_close(cache, new, rtol=1e-4, atol=1e-4)
        rows += int((cache != old).any(dim=-1).sum())
    print(rows * PAGE)


def _protect(cache: torch.Tensor) -> None:
    """Make all pages of a cache but those at POSITION read-only."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for page in range(CACHE_HEADS * LENGTH):
        if page % LENGTH != POSITION:
            address = ctypes.c_void_p(cache.data_ptr() + page * PAGE)
            assert protect(address, ctypes.c_size_t(PAGE), mmap.PROT_READ) == 0


def _run(statement: str) -> subprocess.CompletedProcess[str]:
    program = f"import tests.test_llama_cache as t; {statement}"
    root = Path(__file__).parents[1]
    return subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_a_step_writes_its_new_rows_and_nothing_else() -> None:
    done = _run("t._guarded_step()")
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    assert int(done.stdout) == ROWS_WRITTEN * PAGE


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_a_write_to_a_guarded_row_would_end_the_process() -> None:
    done = _run(
        "import mmap, torch; block = mmap.mmap(-1, t.LENGTH * t.PAGE);"
        "cache = torch.frombuffer(block, dtype=torch.float32).view(1, 1, t.LENGTH, -1);"
        "t._protect(cache); cache[0, 0, t.POSITION] = 1; print('new row', flush=True); cache[0, 0, 0] = 1"
    )
    assert done.stdout == "new row\n"
    assert done.returncode < 0
