"""Saving a compiled graph as one file, or as bytes, and loading it without a compiler or a frontend.

The file is an uncompressed zip (`hidet.runtime.archive`):

manifest.json         format, digest of program.json, and of each code, mixed with that of the program
program.json          target, architecture, host program, signature, names of the codes, digests of the weights
code/*                objects of the target
weights.safetensors   data at a multiple of 64 bytes, so that it is memory-mapped, not read

A file of several signatures has such members for each, in folders 0, 1, … without weights, a manifest with their names
and the digests of theirs, and one member with the weights of all.

Every byte that means something is covered by a SHA-256, and the program is verified besides
(`hidet.runtime.verify`). Digests find damage and mix-ups, not forgery: code of the file is native code that runs with
all rights of the process. Load only what you trust; docs/security.md says more.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hidet.cache import open_cache
from hidet.errors import (
    ArtifactError,
    CodegenError,
    CompileError,
    HidetError,
    OptionError,
    PluginError,
    suggestion,
)
from hidet.plugins.host import load_registry
from hidet.runtime.archive import Archive, copy_bytes, map_file, sha256_of, unreadable, write_archive
from hidet.runtime.bake import bake_prepared, needs_baking
from hidet.runtime.compiled import CodeBundle, CompiledGraph, CompileReport
from hidet.runtime.encoding import decode_program, decode_signature, encode_program, encode_signature
from hidet.runtime.identity import require_bound
from hidet.runtime.program import HostProgram, NodeCounts, segment_symbols
from hidet.runtime.replay import REPLAY_AFTER
from hidet.runtime.signature import Signature
from hidet.runtime.verify import verify_program, verify_signature
from hidet.runtime.weights import StoredWeights, decode_weights, distinct, encode_weights
from hidet.target import Binary

if TYPE_CHECKING:
    from hidet.plugins.registry import Registry

FORMAT = 10
DEFAULT_SIGNATURE = "serving_default"
_WEIGHTS = "weights.safetensors"
_MANIFEST = "manifest.json"
_PROGRAM = "program.json"
_HINT = "compile and save the model again"

Verify = Literal["full", "lazy", "none"]
_VERIFY: tuple[Verify, ...] = ("full", "lazy", "none")


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """What `hidet verify` tells of a file: sha256 of all of it, what it was made for, and bytes of its parts."""

    sha256: str
    format: int
    target: str
    arch: str
    inputs: tuple[str, ...]
    code_bytes: int
    weights: int
    weight_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Contents:
    """A decoded file. constants: how many of the weights are those of the program, not of its prepare program."""

    target: str
    arch: str
    program: HostProgram
    signature: Signature | None
    binaries: tuple[Binary, ...]
    weights: StoredWeights
    constants: int


def save(bundle: CodeBundle, path: str | os.PathLike[str]) -> None:
    """Write `bundle` to `path`, aside first and published by one rename. ArtifactError when it cannot be saved."""
    _write(_members(bundle), path)


def save_signatures(graphs: Mapping[str, CompiledGraph], path: str | os.PathLike[str]) -> None:
    """Write several graphs to one file, by the names that `load` finds them by. Equal weights are stored once.

    ArtifactError when one cannot be saved, OptionError where there is none.
    """
    if not graphs:
        raise OptionError("a file needs at least one signature")
    for graph in graphs.values():
        graph.require_usable()
    bundles = [graph.bundle for graph in graphs.values()]
    every = [array for bundle in bundles for array in (*bundle.constants, *bundle.prepare_constants)]
    arrays, numbers = distinct(every)
    weights = encode_weights(arrays)
    members: list[tuple[str, list[Any]]] = []
    digests: list[str] = []
    first = 0
    for number, bundle in enumerate(bundles):
        last = first + len(bundle.constants) + len(bundle.prepare_constants)
        parts = _program_members(bundle, numbers[first:last])
        first = last
        digests.append(sha256_of(*parts[0][1]))
        members += [(f"{number}/{name}", content) for name, content in parts]
    top = {"format": FORMAT, "signatures": list(graphs), "programs": digests, "weights": weights.digests}
    _write([(_MANIFEST, [json.dumps(top).encode()]), *members, (_WEIGHTS, weights.parts)], path)


def _write(members: Sequence[tuple[str, Sequence[Any]]], path: str | os.PathLike[str]) -> None:
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        write_archive(temporary, members, aligned=_WEIGHTS)
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ArtifactError(f"cannot write {target}: {error.strerror or error}") from error


def load(
    path: str | os.PathLike[str],
    *,
    verify: Verify = "full",
    sha256: str | None = None,
    signature: str | None = None,
) -> CompiledGraph:
    """A compiled graph from a file of `CompiledGraph.save`. Needs hidet-core and the target's wheel only.

    **The file holds native code, which runs with all rights of this process: load only what you trust.** Digests in the
    file find damage, not forgery; `sha256`, which you got from whom you trust, finds both. See docs/security.md.

    verify: when the digests of weights are checked. "full": here. "lazy": at the first call, which reads them anyway.
    "none": never, so that damaged weights give wrong numbers. Everything else is always checked. Weights are mapped:
    do not write to a file that is in use, replace it as `save` does.
    sha256: 64 hexadecimal digits, which the SHA-256 of the whole file must be.
    signature: which graph of a file of `save_signatures`; None is the only one, or "serving_default".
    ArtifactError when the file is damaged, of another format, or made for another processor, and for a signature that
    it does not have.
    """
    if verify not in _VERIFY:
        raise OptionError(f"verify={verify!r} is not known", hint=f"known: {', '.join(map(repr, _VERIFY))}")
    return _load(os.fspath(path), map_file(path), verify, sha256, signature)


def to_bytes(bundle: CodeBundle) -> bytes:
    """What `save` writes, for pickle. ArtifactError when the graph cannot be saved."""
    file = io.BytesIO()
    write_archive(file, _members(bundle), aligned=_WEIGHTS)
    return file.getvalue()


def from_bytes(data: bytes) -> CompiledGraph:
    """As `load`, from what `to_bytes` gave. The weights lie in a copy of the bytes."""
    return _load("the pickled graph", copy_bytes(data), "full", None, None)


def verify_file(path: str | os.PathLike[str], sha256: str | None = None) -> ArtifactFacts:
    """Check all digests of a file and verify its program, but run none of its code; the target need not be installed.

    ArtifactError as `load`, apart from files that are made for another processor.
    """
    name, memory = os.fspath(path), map_file(path)
    found = _require_sha256(memory, name, sha256) if sha256 is not None else sha256_of(memory)
    with _decoding(name):
        archive = Archive(name, memory)
        top = _manifest(archive, "")
        if "signatures" not in top:
            every = [_decode(archive, "", None, lambda _: _not_called)]
            weights = every[0].weights
        else:
            weights = decode_weights(archive.member(_WEIGHTS), top["weights"], name)
            prefixes = [_prefix(archive, top, str(signature)) for signature in top["signatures"]]
            every = [_decode(archive, prefix, weights, lambda _: _not_called) for prefix in prefixes]
        weights.verify()
    return ArtifactFacts(
        sha256=found,
        format=FORMAT,
        target=every[0].target,
        arch=every[0].arch,
        inputs=tuple(given.name for contents in every for given in contents.program.inputs),
        code_bytes=sum(len(binary.data) for contents in every for binary in contents.binaries),
        weights=len(weights.arrays),
        weight_bytes=sum(place.size for place in weights.places),
    )


def _members(bundle: CodeBundle) -> list[tuple[str, list[Any]]]:
    """The members of the file, in order."""
    weights = encode_weights([*bundle.constants, *bundle.prepare_constants])
    return [*_program_members(bundle, weights.digests), (_WEIGHTS, weights.parts)]


def _program_members(bundle: CodeBundle, weights: Any) -> list[tuple[str, list[Any]]]:
    """Those of a program. weights: digests of its own, or numbers among those that all programs of a file share."""
    described = json.dumps(
        {
            "target": bundle.target,
            "arch": bundle.arch,
            "program": encode_program(bundle.program),
            "signature": encode_signature(bundle.signature),
            "code": [binary.name for binary in bundle.binaries],
            "constants": len(bundle.constants),
            "weights": weights,
        }
    ).encode()
    digest = sha256_of(described)
    codes = [_code_digest(digest, binary) for binary in bundle.binaries]
    manifest = json.dumps({"format": FORMAT, "program": digest, "code": codes}).encode()
    parts = [(_MANIFEST, [manifest]), (_PROGRAM, [described])]
    return [*parts, *((f"code/{number}", [binary.data]) for number, binary in enumerate(bundle.binaries))]


def _code_digest(program: str, binary: Binary) -> str:
    """That of a code together with the program that calls it: neither can be mistaken for another's."""
    return sha256_of(program.encode(), binary.name.encode(), b"\0", binary.data)


@contextlib.contextmanager
def _decoding(name: str) -> Iterator[None]:
    """Nothing but ArtifactError comes out of what reads a file."""
    try:
        yield
    except ArtifactError:
        raise
    except HidetError as error:
        raise ArtifactError(f"{name} is malformed: {error.message}", hint=error.hint) from error
    except Exception as error:  # what json, numpy and others make of content that no digest vouches for
        raise unreadable(name, error) from error


def _manifest(archive: Archive, prefix: str) -> dict[str, Any]:
    """A manifest. ArtifactError for one of another format."""
    name = archive.name
    manifest = json.loads(archive.member(f"{prefix}{_MANIFEST}").tobytes())
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else None
        raise ArtifactError(f"{name} has format {found}, this hidet reads format {FORMAT}", hint=_HINT)
    return manifest


def _prefix(archive: Archive, top: Mapping[str, Any], signature: str | None) -> str:
    """What names of members begin with that are of one signature of a file; its manifest is the right one."""
    names = list(map(str, top["signatures"]))
    wanted = signature if signature is not None else names[0] if len(names) == 1 else DEFAULT_SIGNATURE
    if wanted not in names:
        raise ArtifactError(
            f"{archive.name} has no signature {wanted!r}: it has {', '.join(names)}",
            hint=suggestion(wanted, names),
        )
    number = names.index(wanted)
    if sha256_of(archive.member(f"{number}/{_MANIFEST}")) != top["programs"][number]:
        raise ArtifactError(f"{archive.name}: the manifest of signature {wanted!r} is damaged", hint=_HINT)
    return f"{number}/"


def _decode(
    archive: Archive, prefix: str, shared: StoredWeights | None, find_call: Callable[[str], Callable[..., Any]]
) -> _Contents:
    """All of a program but the bytes of its weights, checked. Other errors than ArtifactError mean that the file is
    damaged. prefix: of names of members. shared: weights of all programs of the file; None where there is one."""
    name = archive.name
    manifest = _manifest(archive, prefix)
    described = archive.member(f"{prefix}{_PROGRAM}").tobytes()
    digest = sha256_of(described)
    if digest != manifest["program"]:
        raise ArtifactError(f"{name}: the program is damaged", hint=_HINT)
    data = json.loads(described)
    names, digests = list(map(str, data["code"])), manifest["code"]
    binaries = tuple(Binary(symbol, archive.member(f"{prefix}code/{n}").tobytes()) for n, symbol in enumerate(names))
    for binary, expected in zip(binaries, digests, strict=True):
        if _code_digest(digest, binary) != expected:
            raise ArtifactError(f"{name}: code of {binary.name} is damaged, or that of another program", hint=_HINT)
    if shared is None:
        weights = decode_weights(archive.member(_WEIGHTS), data["weights"], name)
    else:
        weights = shared.part(data["weights"])
    count = data["constants"]
    if type(count) is not int or not 0 <= count <= len(weights.arrays):
        raise ArtifactError(f"{name}: {count} of {len(weights.arrays)} weights are constants")
    program = decode_program(data["program"], find_call)
    if binaries and not segment_symbols(program):
        raise ArtifactError(f"{name} has code that its program does not run", hint=_HINT)
    require_bound(program, str(data["target"]), str(data["arch"]))
    verify_program(program, weights.arrays[:count], weights.arrays[count:])
    signature = decode_signature(data["signature"])
    verify_signature(signature, program)
    return _Contents(str(data["target"]), str(data["arch"]), program, signature, binaries, weights, count)


def _load(name: str, memory: Any, verify: Verify, sha256: str | None, signature: str | None) -> CompiledGraph:
    """name: of the file, for messages. memory: its bytes as an array, in which the weights stay."""
    if sha256 is not None:
        _require_sha256(memory, name, sha256)
    registry = load_registry()
    with _decoding(name):
        archive = Archive(name, memory)
        top, prefix, shared = _manifest(archive, ""), "", None
        if "signatures" in top:
            prefix = _prefix(archive, top, signature)
            shared = decode_weights(archive.member(_WEIGHTS), top["weights"], name)
        elif signature is not None:
            raise ArtifactError(f"{name} has no signature {signature!r}: it holds one graph", hint="leave it out")
        contents = _decode(archive, prefix, shared, lambda operator: _host_operator(operator, registry, name))
        weights = contents.weights
        # The digest of the whole file vouches for the weights, too.
        if verify == "full" and sha256 is None:
            weights.verify()
    try:
        make_target: Any = registry.target(contents.target).resolve()
    except PluginError as error:
        raise ArtifactError(f"{name} is for target {contents.target}: {error.message}", hint=error.hint) from error
    target = make_target()
    refusal = None if target.arch == contents.arch else target.refusal(contents.arch)
    if refusal is not None:
        raise ArtifactError(
            f"{name} cannot run here: {refusal}",
            hint="compile and save the model on a machine of this kind, or for what both have in common",
        )
    try:
        loaded = target.load(contents.binaries, open_cache())
        functions = {symbol: loaded.function(symbol, None) for symbol in segment_symbols(contents.program)}
    except (CodegenError, CompileError) as error:
        raise ArtifactError(f"{name}: its code cannot be loaded: {error.message}", hint=error.hint) from error
    bundle = CodeBundle(
        program=contents.program,
        binaries=contents.binaries,
        constants=weights.arrays[: contents.constants],
        prepare_constants=weights.arrays[contents.constants :],
        target=contents.target,
        arch=contents.arch,
        signature=contents.signature,
    )
    report = CompileReport(NodeCounts(), 0, modules=len(contents.binaries))
    before = weights.verify if verify == "lazy" and sha256 is None else None
    if needs_baking(contents.program):
        # It was compiled where its code does not run. Weights are read here, so they are checked before.
        if before is not None:
            weights.verify()
            before = None
        bundle = bake_prepared(bundle, functions, target.memory)
    replay_after = REPLAY_AFTER["default"]
    return CompiledGraph(bundle, functions, report, loaded, target.memory, replay_after, before_use=before)


def _require_sha256(memory: Any, name: str, expected: str) -> str:
    """The digest of a whole file, which is the one expected. OptionError for what is no digest."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", expected):
        raise OptionError(
            f"sha256={expected!r} is no SHA-256", hint="64 hexadecimal digits, as `sha256sum` prints them"
        )
    found = sha256_of(memory)
    if found != expected.lower():
        raise ArtifactError(
            f"{name} has the SHA-256 {found}, expected {expected.lower()}", hint="it is damaged, or another file"
        )
    return found


def _host_operator(name: str, registry: Registry, file: str) -> Callable[..., Any]:
    """What numpy runs for an operator of a saved program."""
    spec = registry.operators.get(name)
    if spec is None or spec.kind != "host" or spec.call is None:
        raise ArtifactError(
            f"{file} runs operator {name} on the host, which no installed plug-in has",
            hint="install the wheel that the operator comes from, a frontend for instance",
        )
    return spec.call


def _not_called(*_: Any, **__: Any) -> Any:
    raise AssertionError("a program that is looked at is not run")
