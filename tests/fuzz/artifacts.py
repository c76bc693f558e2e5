"""Load and run damaged artifacts in processes of their own and say how each ended.

    python -m tests.fuzz.artifacts --count 5000 --seed 0

Each seed makes one file with damaged bytes, and one whose fields were changed behind checksums that are right. Good
ends are an ArtifactError from `hidet.load`, and a run with the very bits of the undamaged file.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import os
import pickle
import random
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.children import End, ends, in_batches, report, serve
from tests.fuzz.mutate import NUMBERS, TEXTS, changed_bytes

MODULE = "tests.fuzz.artifacts"

Json = Any

SEALS = ("zip", "part", "all")
"""How far checksums are made right again: those of the zip, the digest of the part that changed, all digests."""


# --- what is damaged -------------------------------------------------------------------------------------------------


def write_bases(folder: Path) -> list[tuple[str, str]]:
    """Small artifacts of each kind of program, with inputs and results beside them: names and paths."""
    import hidet
    from hidet.testing.control_graphs import control_cases

    graphs = {case.name: (case.graph, case.calls[0][0]) for case in control_cases()}
    graphs |= {"layers": _layers(), "prepared": _prepared(), "views": _views(), "words": _words()}
    found = []
    for name, (graph, inputs) in graphs.items():
        path = folder / f"{name}.hidet"
        hidet.compile(graph, target="cpu", options={"threads": 1}).save(path)
        results = hidet.load(path)(*inputs)
        path.with_suffix(".pickle").write_bytes(pickle.dumps((inputs, _as_tuple(results))))
        found.append((name, str(path)))
    return found


def _builder() -> Any:
    from hidet.graph import GraphBuilder
    from hidet.plugins.host import load_registry

    return GraphBuilder(load_registry().operators)


def _type(*shape: Any, name: str = "f32") -> Any:
    from hidet.dtypes import dtype
    from hidet.graph import TensorType

    return TensorType(dtype(name), shape)


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _layers() -> tuple[Any, tuple[Any, ...]]:
    """Two layers with weights, for any number of rows."""
    from hidet import dims

    b = _builder()
    x = b.input(_type(dims.symbol("rows", 1, 4096), 24), "x")
    y = b.emit("relu", b.emit("linear", x, b.constant(_numbers(40, 24)), b.constant(_numbers(40))))
    y = b.emit("softmax", b.emit("linear", y, b.constant(_numbers(10, 40)), b.constant(_numbers(10))), axis=-1)
    return b.build([y, b.emit("sum", y, axes=(0,))]), (_numbers(5, 24),)


def _prepared() -> tuple[Any, tuple[Any, ...]]:
    """Weights that are arguments, from which something is prepared."""
    from hidet import dims

    b = _builder()
    x = b.input(_type(dims.symbol("rows", 1, 4096), 7), "x")
    w = b.input(_type(7, 9), "w", is_parameter=True)
    v = b.input(_type(9), "v", is_parameter=True)
    return b.build([b.emit("add", b.emit("matmul", x, b.emit("exp", w)), v)]), (
        _numbers(5, 7),
        _numbers(7, 9),
        _numbers(9),
    )


def _views() -> tuple[Any, tuple[Any, ...]]:
    """Results that share memory, temporaries that share an arena, and a size as result."""
    from hidet import dims

    b = _builder()
    x = b.input(_type(dims.symbol("rows", 2, 64), 6), "x")
    total = b.emit("sum", b.emit("exp", x), axes=(1,), keepdim=True)
    scaled = b.emit("div", b.emit("exp", x), total)
    turned = b.emit("transpose", b.emit("cumsum", scaled, axis=0), perm=(1, 0))
    return b.build([turned, scaled]), (_numbers(4, 6),)


def _words() -> tuple[Any, tuple[Any, ...]]:
    """Strings, which numpy works on."""
    from hidet import dtypes

    b = _builder()
    x = b.input(_type(3, name="string"), "words")
    spelled = b.emit("string_concat", x, b.constant(np.array(["e", "", "o"], object)))
    numbers = b.emit("lookup", spelled, keys=("one", "two"), values=(1.0, 2.0), default=-1.0, dtype=dtypes.f32)
    two = b.constant(2, dtypes.f32)
    return b.build([b.emit("mul", numbers, two), spelled]), (np.array(["on", "two", "tw"], object),)


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


# --- damage ----------------------------------------------------------------------------------------------------------


def mutated(data: bytes, seed: int) -> tuple[str, bytes]:
    """What was done, and the file: bytes of it damaged for even seeds, fields changed for odd ones."""
    source = random.Random(seed)
    if seed % 2 == 0:
        return "bytes", _damaged(data, source)
    members = _members(data)
    part = source.choice(("program", "program", "program", "manifest", "weights"))
    seal = source.choice(SEALS)
    program = json.loads(members["program.json"])
    manifest = json.loads(members["manifest.json"])
    weights = members["weights.safetensors"]
    (length,) = struct.unpack_from("<Q", weights)
    header, body = weights[8 : 8 + length], weights[8 + length :]
    if part == "program":
        for _ in range(source.choice((1, 1, 1, 2))):
            program = _changed(program, source)
    elif part == "manifest":
        manifest = _changed(manifest, source)
    else:
        header = json.dumps(_changed(json.loads(header), source)).encode()
        header += b" " * (-(len(header) + 8) % 64)
        members["weights.safetensors"] = struct.pack("<Q", len(header)) + header + body
    _seal(members, program, manifest, header, "zip" if part == "manifest" else seal)
    return f"{part} {seal}", _archive(members)


def _damaged(data: bytes, source: random.Random) -> bytes:
    """Bytes changed anywhere, or in what describes the rest: headers, manifest, program, the directory at the end."""
    if source.random() < 0.5:
        return changed_bytes(data, source)
    copy = bytearray(data)
    ends_at = data.rindex(b"PK\1\2")
    starts = data.index(b"PK\1\2")
    starts_of_headers = [i for i in range(len(data)) if data.startswith(b"PK\3\4", i)]
    ranges = [(starts, len(data)), (ends_at, len(data)), (0, starts_of_headers[2])]
    ranges += [(start, start + 120) for start in starts_of_headers]
    for _ in range(source.randint(1, 3)):
        first, last = source.choice(ranges)
        copy[source.randrange(first, last)] = source.randrange(256)
    return bytes(copy)


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(members: dict[str, bytes]) -> bytes:
    from hidet.runtime.archive import write_archive

    file = io.BytesIO()
    write_archive(file, [(name, [content]) for name, content in members.items()], aligned="weights.safetensors")
    return file.getvalue()


def _seal(members: dict[str, bytes], program: Json, manifest: Json, header: bytes, seal: str) -> None:
    """Put changed parts in their places, with as many digests as `seal` says."""
    from hidet.runtime.archive import sha256_of

    if seal != "zip" and isinstance(program, dict) and isinstance(program.get("weights"), list) and program["weights"]:
        program["weights"][0] = sha256_of(header)
    described = json.dumps(program).encode()
    is_changed = described != members["program.json"]
    members["program.json"] = described
    if seal != "zip" and is_changed:
        manifest["program"] = sha256_of(described)
    if seal == "all":
        names = program["code"] if isinstance(program, dict) and isinstance(program.get("code"), list) else []
        code = [(name, members.get(f"code/{n}", b"")) for n, name in enumerate(names) if isinstance(name, str)]
        texts = [sha256_of(manifest["program"].encode(), name.encode("utf-8", "replace"), b"\0", c) for name, c in code]
        manifest["code"] = texts
    members["manifest.json"] = json.dumps(manifest).encode()


def _changed(data: Json, source: random.Random) -> Json:
    """A copy with one change somewhere; every value is as likely to be chosen."""
    data = json.loads(json.dumps(data))
    places = list(_places(data))
    if not places:
        return _value(data, source)
    holder, key = source.choice(places)
    value = holder[key]
    kind = source.random()
    if kind < 0.1:
        del holder[key]
    elif kind < 0.2 and isinstance(holder, list):
        holder.insert(key, value)
    elif kind < 0.3 and isinstance(holder, list):
        other = source.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    elif kind < 0.4:
        other, place = source.choice(places)
        holder[key] = json.loads(json.dumps(other[place])) if place in range(len(other)) or place in other else None
    elif kind < 0.5:
        holder[key] = source.choice((None, [], {}, "", 0, -1, True, 1.5, 1e308, [[]], {"tensor": None}, [[[[]]] * 3]))
    else:
        holder[key] = _value(value, source)
    return data


def _places(data: Json) -> Iterator[tuple[Any, Any]]:
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield data, key
        yield from _places(value)


def _value(old: Json, source: random.Random) -> Json:
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return source.choice((*NUMBERS, old + 1, old - 1, old * 2, old + 1, old - 1))
    if isinstance(old, float):
        return source.choice((0.0, -1.0, 1e30, float("nan"), float("inf"), old * 2))
    if isinstance(old, str):
        digits = [place for place, letter in enumerate(old) if letter.isdigit()]
        texts = [*TEXTS, old[:-1], old + "x", old + " + 1", f"2*({old})", "rows", "+".join(["rows"] * 20_000)]
        if digits:
            place = source.choice(digits)
            texts += [old[:place] + source.choice("0123456789") + old[place + 1 :]] * 6
        return source.choice(texts)
    return source.choice((None, 0, 1, "x", []))


# --- one file --------------------------------------------------------------------------------------------------------


@functools.cache
def _base(path: str) -> tuple[bytes, Any, Any]:
    inputs, expected = pickle.loads(Path(path).with_suffix(".pickle").read_bytes())
    return Path(path).read_bytes(), inputs, expected


def end_of(base: str, path: str, seed: int) -> End:
    """Damage an artifact, load it, run it and compare."""
    import hidet
    from hidet.errors import ArtifactError, HidetError

    data, inputs, expected = _base(path)
    what, damaged = mutated(data, seed)
    file = Path(path).with_name(f"{os.getpid()}.damaged")
    file.unlink(missing_ok=True)  # the one before may still be mapped
    file.write_bytes(damaged)
    try:
        graph = hidet.load(file)
    except ArtifactError:
        return End(base, seed, "refused", what)
    except BaseException as error:  # noqa: BLE001 - every other exception is what this looks for
        return End(base, seed, "uncaught", f"{what}: load: {type(error).__name__}: {str(error)[:200]}")
    try:
        results = _as_tuple(graph(*inputs))
    except HidetError as error:
        # Who signs a file anew may say that it takes other arguments.
        is_allowed = what == "program all" and "argument" in str(error)
        return End(base, seed, "refused" if is_allowed else "uncaught", f"{what}: call: {error}")
    except BaseException as error:  # noqa: BLE001
        return End(base, seed, "uncaught", f"{what}: call: {type(error).__name__}: {str(error)[:200]}")
    return End(base, seed, "ran" if _is_same(results, expected) else "wrong", what)


def _is_same(results: Any, expected: Any) -> bool:
    """Bit for bit."""
    if len(results) != len(expected):
        return False
    for mine, theirs in zip(results, expected, strict=True):
        if type(mine) is not type(theirs):
            return False
        if isinstance(mine, np.ndarray):
            if mine.dtype != theirs.dtype or mine.shape != theirs.shape or mine.tolist() != theirs.tolist():
                return False
        elif isinstance(mine, list):
            if not _is_same(mine, theirs):
                return False
        elif mine != theirs:
            return False
    return True


def run(count: int, jobs: int, first_seed: int = 0) -> list[End]:
    """Damage and run 2 * `count` artifacts, half of them by bytes."""
    with tempfile.TemporaryDirectory() as folder:
        bases = write_bases(Path(folder))
        seeds = range(2 * first_seed, 2 * (first_seed + count))
        return ends(MODULE, [(*bases[seed // 2 % len(bases)], seed) for seed in seeds], jobs)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=5000, help="Files of each of the two kinds of damage.")
    parser.add_argument("--seed", type=int, default=0, help="The first seed.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        serve(end_of)
        return
    jobs, seed = arguments.jobs, arguments.seed
    report(in_batches(arguments.count, lambda many, first: run(many, jobs, seed + first), most=1000))


if __name__ == "__main__":
    main()
