"""ONNX Runtime as what `hidet bench` measures beside hidet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hidet.frontend import identifier
from hidet.onnx.convert import given_arrays
from hidet.onnx.loader import load_model


def onnxruntime_run(model: Path, arrays: Mapping[str, Any], threads: int) -> Callable[[], Sequence[Any]]:
    """A call of ONNX Runtime's CPU provider on these inputs. ClickException when it is not installed, or fails.

    arrays: by names of the model, or such names with anything but letters, digits and _ replaced by _.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise click.ClickException("onnxruntime is not installed: pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise click.ClickException(f"ONNX Runtime cannot load {model}: {error}") from error
    wanted = [entry.name for entry in session.get_inputs()]
    named = {name: arrays[name] if name in arrays else arrays[identifier(name)] for name in wanted}
    feed = given_arrays(load_model(model), named)
    return lambda: session.run(None, feed)
