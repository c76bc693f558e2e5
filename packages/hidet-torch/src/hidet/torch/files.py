"""Exported programs in files, as `torch.export.save` writes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from hidet.errors import ImportFailed
from hidet.torch import compat
from torch.export import ExportedProgram


def load_program(path: str | os.PathLike[str]) -> ExportedProgram:
    """The program of a file. ImportFailed for a file that cannot be read, or holds none."""
    try:
        with open(path, "rb") as file:
            return torch.export.load(file)
    except OSError as error:
        raise ImportFailed(f"model file {os.fspath(path)} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # whatever torch raises for what it cannot read
        raise ImportFailed(
            f"model file {os.fspath(path)} is damaged, or no program of torch.export.save: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        ) from error


def run_eager(model: Path, arrays: Mapping[str, Any], threads: int) -> Callable[[], Sequence[Any]]:
    """A call of torch's own execution of a program, on inputs in order, for `hidet bench`."""
    module = load_program(model).module()
    inputs = [torch.as_tensor(array, device="cpu") for array in arrays.values()]
    torch.set_num_threads(threads)

    def run() -> Sequence[Any]:
        with torch.no_grad():
            return [value for value in compat.leaves(module(*inputs)) if isinstance(value, torch.Tensor)]

    return run
