"""Makes the files beside this one, which are tested where jax is not installed: `python make.py`, with jax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jaxlib.mlir.ir
import numpy as np
from jax import export, lax
from jax import numpy as jnp
from jax._src.interpreters import mlir

HERE = Path(__file__).parent
RNG = np.random.default_rng(0)
W, V = (RNG.standard_normal(shape).astype(np.float32).round(2) for shape in ((4, 8), (8, 3)))


def perceptron(x: Any) -> Any:
    return {"scores": jax.nn.softmax(jax.nn.gelu(x @ W) @ V), "largest": x.max()}


def mixed(x: Any, ids: Any) -> Any:
    """One of everything that has a form of its own in text."""
    pooled = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    kernel = jnp.asarray(np.arange(24, dtype=np.float32).reshape(2, 2, 2, 3) / 24)
    numbers = ("NHWC", "HWIO", "NHWC")
    row = lax.conv_general_dilated(pooled, kernel, (1, 1), "SAME", dimension_numbers=numbers).reshape(x.shape[0], -1)
    total = lax.fori_loop(0, 3, lambda i, c: c * 0.5 + row[:, i].sum(), 0.0)
    return (
        *(jnp.sort(row, -1), jnp.argmax(row, -1), row[ids], jnp.where(total > 0, total, -total)),
        lax.cond(total > 1, lambda r: r * 2, lambda r: r - 1, row),
        *(row.at[ids].add(1.0), jnp.cumsum(row, -1), row[:, ::-2], jnp.pad(row, 1)),
    )


def write(name: str, function: Any, specs: list[Any], arguments: list[Any]) -> None:
    exported = export.export(jax.jit(function))(*specs)
    (HERE / f"{name}.jax").write_bytes(exported.serialize())
    (HERE / f"{name}.mlirbc").write_bytes(exported.mlir_module_serialized)
    (HERE / f"{name}.mlir").write_text(exported.mlir_module())
    with mlir.make_ir_context():
        module = jaxlib.mlir.ir.Module.parse(exported.mlir_module())
        (HERE / f"{name}_generic.mlir").write_text(module.operation.get_asm(print_generic_op_form=True))
    results = jax.tree_util.tree_leaves(function(*arguments))
    arrays = {f"in{n}": array for n, array in enumerate(arguments)}
    np.savez(HERE / f"{name}.npz", **arrays, **{f"out{n}": np.asarray(array) for n, array in enumerate(results)})


if __name__ == "__main__":
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    (batch,) = export.symbolic_shape("batch")
    spec: Any = jax.ShapeDtypeStruct
    rows = RNG.standard_normal((3, 4)).astype(np.float32)
    write("perceptron", perceptron, [spec((batch, 4), jnp.float32)], [rows])
    images = RNG.standard_normal((2, 4, 4, 2)).astype(np.float32)
    ids = np.array([1, 0, 1], np.int32)
    write("mixed", mixed, [spec(images.shape, jnp.float32), spec((3,), jnp.int32)], [images, ids])
