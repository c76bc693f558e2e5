"""Reading a model: a path, bytes or a `ModelProto` becomes a checked `LoadedModel`."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from hidet.errors import ImportFailed
from hidet.onnx.tensors import DataFolder
from hidet.onnx.wire import MIN_BYTES, Malformed, without_weights

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto

STANDARD_DOMAIN = ""
"""The domain of ONNX's own operators; "ai.onnx" is another name of it."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model and where its parts are.

    opsets: version by domain. functions: the model's own functions by (domain, name, overload). folder: where external
    data lie. path: the file as the user named it; None for bytes and ModelProto.
    """

    proto: ModelProto
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], FunctionProto]
    folder: DataFolder
    path: str | None


def load_model(source: str | os.PathLike[str] | bytes | ModelProto) -> LoadedModel:
    """Read a model. Data of large weights are not read, only where they lie is remembered: in the model's file, or in
    files beside it.

    Raises ImportFailed for a missing or damaged file and for one that is no ONNX model.
    """
    if isinstance(source, onnx.ModelProto):
        return _loaded(source, None)
    if isinstance(source, bytes | bytearray | memoryview):
        return _loaded(_parse(bytes(source), "the model's bytes"), None)
    path = Path(source)
    try:
        data = _read(path)
    except OSError as error:
        raise ImportFailed(f"model file {path} cannot be read: {error.strerror or error}") from error
    return _loaded(_parse(data, f"model file {path}"), path)


def _read(path: Path) -> bytes:
    """A file's message without the data of large weights; the whole file where it is not understood."""
    if path.stat().st_size < MIN_BYTES:
        return path.read_bytes()
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        try:
            return without_weights(data, path.name)
        except Malformed:
            return bytes(data)


def _parse(data: bytes, what: str) -> ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, whose place differs between versions
        raise ImportFailed(f"{what} is damaged, or no ONNX model: {error}") from error
    return model


def _loaded(model: ModelProto, path: Path | None) -> LoadedModel:
    if not model.HasField("graph"):
        raise ImportFailed("the model has no graph", hint="expected an ONNX ModelProto")
    require_text(model)
    opsets = {canonical_domain(entry.domain): entry.version for entry in model.opset_import}
    if not opsets:
        raise ImportFailed("the model names no operator set", hint="its opset_import is empty; export it again")
    for domain, version in opsets.items():
        if not 1 <= version < 2**31:
            raise ImportFailed(f"the model asks for version {version} of operator set {domain or 'ai.onnx'!r}")
    functions = {(canonical_domain(f.domain), f.name, f.overload): f for f in model.functions}
    folder = DataFolder() if path is None else DataFolder(path.parent, path)
    return LoadedModel(model, opsets, functions, folder, None if path is None else str(path))


def require_text(model: ModelProto) -> None:
    """ImportFailed when a name somewhere in a model is not UTF-8, which the parser hands on as bytes."""
    pending: list[Any] = [model]
    while pending:
        message = pending.pop()
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                pending.extend(value if field.is_repeated else [value])
            elif field.type == field.TYPE_STRING:
                for text in value if field.is_repeated else [value]:
                    if not isinstance(text, str):
                        raise ImportFailed(
                            f"the model is damaged: {field.full_name} is {text[:40]!r}, which is no text"
                        )


def canonical_domain(domain: str) -> str:
    """One spelling of a domain: ONNX's own operators may be written with domain "" or "ai.onnx"."""
    return STANDARD_DOMAIN if domain == "ai.onnx" else domain
