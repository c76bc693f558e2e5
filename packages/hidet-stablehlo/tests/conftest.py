"""Functions of jax compiled, against jax.

Tests that need jax run where it is installed (`nox -s jax`), and are skipped elsewhere; those of reading text and bytes
run everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import hidet
import hidet.jax
from hidet.testing.numerics import Sample, check_output

try:
    import jax
    import jax.export
except ImportError:
    jax = None

Array = np.ndarray[Any, np.dtype[Any]]
SEEDS = 3
SCATTERS = {"scatter_nd", "index_put"}


@pytest.fixture(autouse=True, scope="session")
def _own_kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIDET_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


def specs_of(arrays: Sequence[Array], batch: int | None) -> list[Any]:
    """Types like those of arrays, where axes of extent `batch` at the front are open. None: all are fixed."""
    if batch is None:
        return [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    (b,) = jax.export.symbolic_shape("b")
    return [
        jax.ShapeDtypeStruct((b, *array.shape[1:]) if array.shape[:1] == (batch,) else array.shape, array.dtype)
        for array in arrays
    ]


def widened(tree: Any) -> Any:
    """The same in f64."""
    return jax.tree_util.tree_map(
        lambda leaf: np.asarray(leaf, np.float64) if np.asarray(leaf).dtype == np.float32 else np.asarray(leaf), tree
    )


def _check(
    function: Callable[..., Any],
    make: Callable[[np.random.Generator, int], Sequence[Array]],
    params: Any = None,
    *,
    symbolic: bool = True,
    strict: bool = True,
    in_float64: bool = True,
) -> hidet.CompiledGraph:
    """Compile `function(*inputs)`, or `function(params, *inputs)` with constants, and compare its results with jax's.

    make: inputs, of a generator and a batch. symbolic: whether it is compiled once for batches of all sizes.
    strict: whether nothing but scatters may be on the fallback nest. in_float64: whether the function computes in f64
    what it is given in f64; else errors are measured against jax's own f32.
    """
    batches = (3, 5, 3)
    bound = function if params is None else lambda *inputs: function(params, *inputs)
    specs = specs_of(make(np.random.default_rng(0), batches[0]), batches[0] if symbolic else None)
    compiled = hidet.jax.compile(bound, *specs)
    columns: list[list[Sample]] = []
    for seed in range(SEEDS):
        inputs = make(np.random.default_rng(seed), batches[seed] if symbolic else batches[0])
        ours = jax.tree_util.tree_leaves(compiled(*inputs))
        eager = jax.tree_util.tree_leaves(jax.jit(bound)(*inputs))
        reference = eager
        if in_float64:
            with jax.enable_x64(True):
                given = () if params is None else (widened(params),)
                reference = jax.tree_util.tree_leaves(jax.jit(function)(*given, *widened(list(inputs))))
        rows = list(zip(ours, eager, reference, strict=True))
        columns = columns or [[] for _ in rows]
        for column, row in zip(columns, rows, strict=True):
            column.append(Sample(*map(np.asarray, row)))
    for number, samples in enumerate(columns):
        # Without a wider reference both errors count as ours.
        verdict = check_output(f"result {number}", samples, 0.0 if in_float64 else 2e-7)
        assert verdict.correct, str(verdict)
    assert compiled.report().nodes.eager == 0
    left = {name for kind, name in compiled.report().nodes.names if kind == "fallback"}
    assert not strict or left <= SCATTERS, left
    return compiled


@pytest.fixture
def check() -> Callable[..., hidet.CompiledGraph]:
    """Compile a function and compare it with jax."""
    return _check
