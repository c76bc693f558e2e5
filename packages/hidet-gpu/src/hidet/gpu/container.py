"""Machine code of one module, for host and device, as bytes.

8 bytes   length of the header
header    JSON: what the target tells of the parts, and their lengths
parts     one after the other
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from hidet.errors import ArtifactError


def pack_parts(told: Mapping[str, Any], parts: Sequence[bytes]) -> bytes:
    """Parts, and what is told of them as JSON, as bytes."""
    text = json.dumps({"lengths": [len(part) for part in parts], **told}).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def unpack_parts(data: bytes, target: str) -> tuple[Mapping[str, Any], list[bytes]]:
    """What `pack_parts` was given. ArtifactError for other bytes. target: whose code is expected ("CUDA")."""
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        parts: list[bytes] = []
        place = 8 + length
        for size in header["lengths"]:
            parts.append(data[place : place + size])
            place += size
        if place != len(data):
            raise ValueError(f"{len(data)} bytes, expected {place}")
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"this is no code of the {target} target: {error}") from error
    return header, parts
