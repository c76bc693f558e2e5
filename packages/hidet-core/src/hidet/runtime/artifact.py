"""Saving a compiled graph as one file, or as bytes, and loading it without a compiler or a frontend.

The file is an uncompressed zip: manifest.json (format, target, architecture, program), code/* (objects of the target)
and weights.safetensors, whose data starts at a multiple of 64 bytes so that it is memory-mapped, not read.
It is native code: program and code are checked for damage and fit, weights for their place in the file only, because
they are not read before they are used. Load only what you trust.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hidet.dtypes import dtype, from_numpy
from hidet.errors import ArtifactError
from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.encoding import decode_program, decode_signature, encode_program, encode_signature
from hidet.runtime.program import HostProgram, NodeCounts, Segment, programs_of
from hidet.runtime.replay import REPLAY_AFTER
from hidet.target import Binary

if TYPE_CHECKING:
    from hidet.plugins.registry import Registry
    from hidet.runtime.compiled import CodeBundle, CompiledGraph

FORMAT = 6
_ALIGNMENT = 64
_WEIGHTS = "weights.safetensors"
_MANIFEST = "manifest.json"


def save(bundle: CodeBundle, path: str | os.PathLike[str]) -> None:
    """Write `bundle` to `path`, aside first and published by one rename. ArtifactError when it cannot be saved."""
    target = Path(path)
    manifest = _manifest(bundle)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        _write(temporary, bundle, manifest)
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ArtifactError(f"cannot write {target}: {error.strerror or error}") from error


def load(path: str | os.PathLike[str]) -> CompiledGraph:
    """A compiled graph from a file of `CompiledGraph.save`. Needs hidet-core and the target's wheel only.

    ArtifactError when the file is damaged, of another format, or made for another processor.
    """
    import numpy

    return _load(Path(path), os.fspath(path), lambda: numpy.memmap(path, numpy.uint8, mode="r"))


def to_bytes(bundle: CodeBundle) -> bytes:
    """What `save` writes, for pickle. ArtifactError when the graph cannot be saved."""
    file = io.BytesIO()
    _write(file, bundle, _manifest(bundle))
    return file.getvalue()


def from_bytes(data: bytes) -> CompiledGraph:
    """As `load`, from what `to_bytes` gave. The weights lie in a copy of the bytes."""
    import numpy

    def copied() -> Any:
        # Code relies on where weights begin, and bytes lie anywhere.
        memory, _ = NumpyAdapter().empty((len(data),), (1,), "uint8")
        memory[:] = numpy.frombuffer(data, numpy.uint8)
        return memory

    return _load(io.BytesIO(data), "the pickled graph", copied)


def _manifest(bundle: CodeBundle) -> str:
    return json.dumps(
        {
            "format": FORMAT,
            "target": bundle.target,
            "arch": bundle.arch,
            "program": encode_program(bundle.program),
            "signature": encode_signature(bundle.signature),
            "code": [[b.name, _digest(b.data)] for b in bundle.binaries],
            "constants": len(bundle.constants),
        }
    )


def _write(file: Path | io.BytesIO, bundle: CodeBundle, manifest: str) -> None:
    weights = _encode_weights([*bundle.constants, *bundle.prepare_constants])
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_MANIFEST, manifest)
        for number, binary in enumerate(bundle.binaries):
            archive.writestr(f"code/{number}", binary.data)
        _write_aligned(archive, _WEIGHTS, weights)


def _load(file: Path | io.BytesIO, name: str, memory: Callable[[], Any]) -> CompiledGraph:
    """name: of the file, for messages. memory: gives its bytes as an array, in which the weights stay."""
    from hidet.cache import open_cache
    from hidet.plugins.host import load_registry
    from hidet.runtime.compiled import CodeBundle, CompiledGraph, CompileReport

    try:
        with zipfile.ZipFile(file) as archive:
            manifest = json.loads(archive.read(_MANIFEST))
            if manifest.get("format") != FORMAT:
                raise ArtifactError(f"{name} has format {manifest.get('format')}, this hidet reads format {FORMAT}")
            codes = [archive.read(f"code/{n}") for n in range(len(manifest["code"]))]
            arrays = _weights_in(memory(), archive, name)
    except (OSError, zipfile.BadZipFile, json.JSONDecodeError, KeyError, struct.error) as error:
        raise ArtifactError(f"{name} is not a readable hidet artifact: {type(error).__name__}: {error}") from error
    binaries = []
    for (symbol, digest), code in zip(manifest["code"], codes, strict=True):
        if _digest(code) != digest:
            raise ArtifactError(f"{name}: code of {symbol} is damaged", hint="compile and save the model again")
        binaries.append(Binary(symbol, code))
    registry = load_registry()
    spec = registry.target(manifest["target"])
    make_target: Any = spec.resolve()
    target = make_target()
    refusal = None if target.arch == manifest["arch"] else target.refusal(manifest["arch"])
    if refusal is not None:
        raise ArtifactError(
            f"{name} cannot run here: {refusal}",
            hint="compile and save the model on a machine of this kind, or for what both have in common",
        )
    program = decode_program(manifest["program"], lambda operator: _host_operator(operator, registry, name))
    loaded = target.load(binaries, open_cache())
    functions = {symbol: loaded.function(symbol, None) for symbol in segment_symbols(program)}
    count = manifest["constants"]
    bundle = CodeBundle(
        program=program,
        binaries=tuple(binaries),
        constants=tuple(arrays[:count]),
        prepare_constants=tuple(arrays[count:]),
        target=manifest["target"],
        arch=manifest["arch"],
        signature=decode_signature(manifest["signature"]),
    )
    report = CompileReport(NodeCounts(), 0, modules=len(binaries))
    return CompiledGraph(bundle, functions, report, loaded, target.memory, REPLAY_AFTER["default"])


def _host_operator(name: str, registry: Registry, file: str) -> Callable[..., Any]:
    """What numpy runs for an operator of a saved program."""
    spec = registry.operators.get(name)
    if spec is None or spec.kind != "host" or spec.call is None:
        raise ArtifactError(
            f"{file} runs operator {name} on the host, which no installed plug-in has",
            hint="install the wheel that the operator comes from, a frontend for instance",
        )
    return spec.call


def segment_symbols(program: HostProgram) -> list[str]:
    """Symbols of every segment of a program, of those inside it, and of their prepare programs."""
    found: list[str] = []
    for part in programs_of(program):
        found += [step.symbol for step in part.steps if isinstance(step, Segment)]
        found += [] if part.prepare is None else segment_symbols(part.prepare)
    return found


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _encode_weights(arrays: Sequence[Any]) -> list[Any]:
    """[header, array, array, …] in the safetensors layout: u64 header length, JSON header, data."""
    header: dict[str, Any] = {}
    offset = 0
    parts: list[Any] = []
    for number, array in enumerate(arrays):
        padding = -offset % _ALIGNMENT
        offset += padding
        data = _encode_texts(array) if array.dtype.hasobject else array
        nbytes = len(data) if isinstance(data, bytes) else data.nbytes
        header[str(number)] = {
            "dtype": from_numpy(array.dtype).name,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + nbytes],
        }
        parts += [b"\0" * padding, data]
        offset += nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return [struct.pack("<Q", len(text)) + text, *parts]


def _encode_texts(array: Any) -> bytes:
    """The elements of a tensor of strings as a JSON list; bytes are UTF-8."""
    items = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
    return json.dumps(items).encode()


def _decode_texts(data: bytes, shape: Sequence[int]) -> Any:
    import numpy

    items = json.loads(data)
    made = numpy.empty(len(items), object)
    made[:] = items
    return made.reshape(shape)


def _write_aligned(archive: zipfile.ZipFile, name: str, parts: Sequence[Any]) -> None:
    """Store a member whose data starts at a multiple of 64 bytes, by padding its extra field."""
    assert archive.fp is not None
    info = zipfile.ZipInfo(name)
    fixed = archive.fp.tell() + 30 + len(name) + 4
    padding = -fixed % _ALIGNMENT
    info.extra = struct.pack("<HH", 0xFFFF, padding) + b"\0" * padding
    with archive.open(info, "w", force_zip64=False) as member:
        for part in parts:
            member.write(part if isinstance(part, bytes) else memoryview(part).cast("B") if part.size else b"")


def _weights_in(memory: Any, archive: zipfile.ZipFile, name: str) -> list[Any]:
    """Arrays over the bytes of an archive, which nobody can write to."""
    info = archive.getinfo(_WEIGHTS)
    if info.compress_type != zipfile.ZIP_STORED:
        raise ArtifactError(f"{name}: weights are compressed; they are mapped, so they must be stored")
    memory.flags.writeable = False
    start = info.header_offset
    name_length, extra_length = struct.unpack("<HH", bytes(memory[start + 26 : start + 30]))
    start += 30 + name_length + extra_length
    length = struct.unpack("<Q", bytes(memory[start : start + 8]))[0]
    header = json.loads(bytes(memory[start + 8 : start + 8 + length]))
    base, limit = start + 8 + length, start + info.file_size
    arrays = []
    for number in range(len(header)):
        entry = header[str(number)]
        first, last = (base + offset for offset in entry["data_offsets"])
        if not base <= first <= last <= limit:
            raise ArtifactError(f"{name}: weight {number} lies outside the file")
        if dtype(entry["dtype"]).is_host_only:
            arrays.append(_decode_texts(bytes(memory[first:last]), entry["shape"]))
        else:
            arrays.append(memory[first:last].view(dtype(entry["dtype"]).numpy()).reshape(entry["shape"]))
    return arrays
