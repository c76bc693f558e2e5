"""What a host program and its code have to agree on, as a short text that is part of the names of the code's functions.

Compiled code reads a table of slots, and believes that the program around it fills them with addresses of as much
memory as it was compiled for. No reader of the program can see that in machine code. So the compiler names segments by
all that they rely on: code and program that were not made together do not link.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from hidet.errors import ArtifactError
from hidet.runtime.encoding import encode_program
from hidet.runtime.program import HostProgram, Segment, programs_of

Json = Any

_DIGITS = 16
_HEXADECIMAL = frozenset("0123456789abcdef")


def with_identity(symbol: str, identity: str) -> str:
    """The name of a segment of a program of this identity."""
    return f"{symbol}_{identity}"


def program_identity(program: HostProgram, target: str, arch: str) -> str:
    """That of a program and the programs inside it, made for a machine; not of its prepare program, which has its own.

    It stays the same when constants take the places of what was prepared, and where names and messages differ.
    ArtifactError for a program that cannot be saved.
    """
    return _digest([target, arch, _relied_on(encode_program(program))])


def prepare_identity(program: HostProgram, target: str, arch: str) -> str:
    """That of the prepare program of `program`, and of how the two go together."""
    assert program.prepare is not None
    return _digest([target, arch, program.prepared, _relied_on(encode_program(program.prepare))])


def require_bound(program: HostProgram, target: str, arch: str) -> None:
    """ArtifactError where segments are named by another identity than that of the program that runs them."""
    _require(program, program_identity(program, target, arch))
    if program.prepare is not None:
        _require(program.prepare, prepare_identity(program, target, arch))


def _require(program: HostProgram, identity: str) -> None:
    for part in programs_of(program):
        for step in part.steps:
            if isinstance(step, Segment) and not step.symbol.endswith(with_identity("", identity)):
                raise ArtifactError(
                    f"the code of {step.symbol} was compiled for another program, or another machine",
                    hint="compile and save the model again",
                )


def _digest(data: Json) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()


_RELIED_ON = ("slots", "outputs", "buffers", "sizes", "sources", "stored", "is_repeatable", "asserted", "aligned")


def _relied_on(data: Json) -> Json:
    """The part of an encoded program that code relies on."""
    return {
        **{name: data[name] for name in _RELIED_ON},
        # Without hints, names of arguments, and what messages say.
        "symbols": [facts[:4] for facts in data["symbols"]],
        "inputs": [[tensor, parameter, size, host, used] for tensor, parameter, size, _, host, used in data["inputs"]],
        "size_checks": [check[:3] for check in data["size_checks"]],
        "number_checks": [check[:2] for check in data["number_checks"]],
        # What was prepared becomes constant.
        "filled": sorted([*(slot for slot, _ in data["constants"]), *data["prepared"]]),
        "steps": list(map(_step, data["steps"])),
    }


def _step(data: Json) -> Json:
    if isinstance(data, str):
        # The same whether an identity stands behind it yet or not.
        symbol, _, last = data.rpartition("_")
        return symbol if len(last) == _DIGITS and set(last) <= _HEXADECIMAL else data
    if "check" in data:
        return {"check": data["check"][:4]}
    if "branch" in data:
        return {"branch": data["branch"][1:], "on": data["on"], "of": list(map(_sub, data["of"]))}
    if "loop" in data:
        return {"loop": data["loop"][1:], "state": data["state"], "of": _sub(data["of"])}
    return data


def _sub(data: Sequence[Json]) -> Json:
    program, arguments = data
    return [_relied_on(program), arguments]
