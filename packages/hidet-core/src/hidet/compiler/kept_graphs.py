"""Compiled graphs as a whole in the kernel cache: what was compiled before is read, and no step of the compiler runs.

An entry holds the host program, its machine code, its constants, and what the compile report said. Its key is the text
of the graph with the elements of its constants, and all else that a compilation depends on: target, machine, options,
the plug-ins with their versions, and what these say that they depend on besides (`hidet_graph_facts`). Where a key
cannot tell all of that there is none, and the graph is compiled step by step.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from typing import Any

import numpy

from hidet.cache import CacheKey, code_hash
from hidet.context import CompileContext, Options
from hidet.dims import DimExpr
from hidet.dtypes import DType, dtype, from_numpy
from hidet.errors import ArtifactError, HidetError
from hidet.graph.graph import Graph, subgraphs_of
from hidet.graph.printer import print_graph
from hidet.graph.types import DimType, OptionalType, SequenceType, TensorType
from hidet.host.code_cache import pack, target_text, unpack
from hidet.plugins.host import load_registry
from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.compiled import CodeBundle, CompileReport, ProgramUse
from hidet.runtime.encoding import decode_program, encode_program
from hidet.runtime.program import NodeCounts
from hidet.schedule.device_constants import known_constants, published_constants
from hidet.target import Binary

MOST_CONSTANTS = 1 << 20
"""Bytes of constants above which a graph is not kept: these are a model's weights, which have files of their own."""

_FORMAT = 1
_PREFIX = struct.Struct("<II")  # bytes of the JSON that follows, and of the code behind it; the rest are constants
_PLAIN = (bool, int, str, type(None), DType, DimExpr, TensorType, SequenceType, OptionalType, DimType)
_NOT_OF_THE_CODE = frozenset({"cache", "dump", "tune", "verify", "plugin_options"})


@dataclass(frozen=True, slots=True, eq=False)
class KeptGraph:
    """What an entry holds. report: as of the compilation, without times."""

    bundle: CodeBundle
    report: CompileReport


def compilation_fields(ctx: CompileContext) -> Mapping[str, str] | None:
    """What a compilation depends on besides its graph, for keys; None where a graph is to be compiled step by step:
    because somebody watches the steps, or because a plug-in cannot tell what its parts depend on."""
    options = ctx.options
    if not ctx.cache.is_on or options.verify or options.dump is not None or ctx.registry is not load_registry():
        return None
    facts = ctx.registry.graph_facts(ctx)
    if facts is None:
        return None
    own = {f.name: getattr(options, f.name) for f in fields(Options) if f.name not in _NOT_OF_THE_CODE}
    named = {name: ctx.option(name) for name in sorted(ctx.registry.options)}
    plugins = (f"{record.owner}-{code_hash(record.module)}" for record in ctx.registry.plugins if record.counts)
    return {
        "target": target_text(ctx),
        "arch": ctx.target.arch,
        "device": ctx.target.device,
        "machine": repr(ctx.machine),
        "options": repr(own),
        "plugin_options": repr(named),
        "plugins": " ".join(plugins),
        "constants": repr((published_constants(ctx), known_constants(ctx))),
        "facts": facts,
        "numpy": numpy.__version__,
        **ctx.target.fingerprint(),
    }


def graph_key(graph: Graph, ctx: CompileContext) -> CacheKey | None:
    """What a graph is kept under; None where it is to be compiled step by step. Numbers of attributes, names, places in
    the user's model and elements of constants count."""
    if not is_told_by_its_text(graph, ctx):
        return None
    compilation = compilation_fields(ctx)
    return None if compilation is None else key_of_text(graph_digest(graph), compilation)


def key_of_text(digest: str, compilation: Mapping[str, str]) -> CacheKey:
    """As `graph_key`, of a graph that is known by the digest of its text."""
    return CacheKey.of(name="graph", format=_FORMAT, graph=digest, **compilation)


def graph_digest(graph: Graph) -> str:
    """Of the text of a graph with the names of its values, which the text makes unique."""
    names = [value.name for part in _parts_of(graph) for value in (*part.inputs, *part.constants)]
    names += [value.name for part in _parts_of(graph) for node in part.nodes for value in node.outputs]
    return blake2b("\n".join([print_graph(graph), *names]).encode(), digest_size=32).hexdigest()


def read_graph(key: CacheKey, ctx: CompileContext) -> KeptGraph | None:
    """The graph that is kept under a key; None where there is none."""
    payload = ctx.cache.get(key)
    if payload is None:
        return None
    described, coded = _PREFIX.unpack_from(payload)
    start = _PREFIX.size
    data = json.loads(payload[start : start + described])
    code = unpack(payload[start + described : start + described + coded])
    arrays = _decode_arrays(data["arrays"], payload[start + described + coded :])
    count = data["constants"]
    bundle = CodeBundle(
        program=decode_program(data["program"], lambda name: _host_call(name, ctx)),
        binaries=tuple(Binary(name, content) for name, content in code.items()),
        constants=arrays[:count],
        prepare_constants=arrays[count:],
        target=ctx.target.name,
        arch=ctx.target.arch,
    )
    return KeptGraph(bundle, _decode_report(data["report"]))


def keep_graph(key: CacheKey, bundle: CodeBundle, report: CompileReport, ctx: CompileContext) -> None:
    """Keep a graph that was compiled. One that runs operators in a framework, or has constants of text, is not kept."""
    arrays = [*bundle.constants, *bundle.prepare_constants]
    if any(array.dtype.hasobject for array in arrays) or sum(array.nbytes for array in arrays) > MOST_CONSTANTS:
        return
    try:
        program = encode_program(bundle.program)
    except ArtifactError:
        return
    described = json.dumps(
        {
            "program": program,
            "constants": len(bundle.constants),
            "arrays": [[from_numpy(array.dtype).name, array.shape] for array in arrays],
            "report": asdict(replace(report, seconds={}, build_seconds={})),
        }
    ).encode()
    code = pack({binary.name: binary.data for binary in bundle.binaries})
    contents = [numpy.ascontiguousarray(array).tobytes() for array in arrays]
    ctx.cache.put(key, b"".join([_PREFIX.pack(len(described), len(code)), described, code, *contents]))


def is_told_by_its_text(graph: Graph, ctx: CompileContext) -> bool:
    """Whether graphs with the same text compile to the same: operators are those of plug-ins, and values of attributes
    are such that their text is all that there is to them. Constants are few."""
    nbytes = 0
    for part in _parts_of(graph):
        nbytes += sum(constant.numpy().nbytes for constant in part.constants.values())
        if nbytes > MOST_CONSTANTS or part.prepare is not None:
            return False
        if any(value.tensor.dtype.kind == "string" for value in part.constants):
            return False
        for node in part.nodes:
            if ctx.registry.operators.get(node.op.name) is not node.op or node.op.kind == "eager":
                return False
            if not all(map(_is_plain, node.attrs.values())):
                return False
    return True


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    # Bits of a NaN are not in its text.
    return type(value) in _PLAIN or isinstance(value, Graph) or (type(value) in (float, complex) and value == value)


def _parts_of(graph: Graph) -> Iterator[Graph]:
    """A graph and those inside it."""
    yield graph
    for node in graph.nodes:
        for inner in subgraphs_of(node):
            yield from _parts_of(inner)


def _decode_arrays(described: Sequence[tuple[str, Sequence[int]]], data: bytes) -> tuple[Any, ...]:
    """Arrays of their own, which begin where vectors may."""
    arrays, position = [], 0
    for name, shape in described:
        kind = dtype(name).numpy()
        count = math.prod(shape)
        stored = numpy.frombuffer(data, kind, count, position).reshape(shape)
        position += stored.nbytes
        array = NumpyAdapter().laid_out(stored, [stride // kind.itemsize for stride in stored.strides])
        array.flags.writeable = False
        arrays.append(array)
    return tuple(arrays)


def _decode_report(data: Mapping[str, Any]) -> CompileReport:
    nodes = data["nodes"]
    nodes = NodeCounts(**{**nodes, "names": tuple(map(tuple, nodes["names"])), "places": tuple(nodes["places"])})
    uses = tuple(ProgramUse(**{**use, "tasks": tuple(use["tasks"])}) for use in data["uses"])
    return CompileReport(**{**data, "nodes": nodes, "uses": uses, "notes": tuple(data["notes"])})


def _host_call(name: str, ctx: CompileContext) -> Any:
    """What numpy runs for an operator of a kept program: that of the operator which the key was made with."""
    spec = ctx.registry.operators[name]
    if spec.call is None:
        raise HidetError(f"operator {name} of a kept graph runs on the host, and has nothing to run")
    return spec.call
