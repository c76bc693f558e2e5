"""The arrays of a saved graph in the layout of safetensors (u64 length of the header, JSON, data), with digests."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy

from hidet.dtypes import DType, dtype, from_numpy
from hidet.errors import ArtifactError
from hidet.runtime.archive import ALIGNMENT, sha256_of

Json = Any

_LENGTH = struct.Struct("<Q")
_MAX_RANK = 64  # of numpy
_THREADS_FROM = 8 << 20  # bytes of all tensors from which several threads compute digests


@dataclass(frozen=True, slots=True)
class EncodedWeights:
    """The parts of the member, bytes and arrays of bytes, and the digests of its header and of each tensor's bytes."""

    parts: list[Any]
    digests: Json


@dataclass(frozen=True, slots=True, eq=False)
class StoredWeights:
    """Arrays over the bytes of a file, and what they should be.

    places: the bytes of each; tensors of strings have arrays of their own, made of these bytes.
    """

    file: str
    arrays: tuple[Any, ...]
    places: tuple[Any, ...]
    digests: tuple[str, ...]

    def verify(self) -> None:
        """ArtifactError for the first tensor whose bytes are not those that were saved."""
        found = _digests(self.places)
        wrong = next((n for n, (have, want) in enumerate(zip(found, self.digests, strict=True)) if have != want), None)
        if wrong is not None:
            raise ArtifactError(f"{self.file}: weight {wrong} is damaged", hint="compile and save the model again")

    def part(self, numbers: Sequence[int]) -> StoredWeights:
        """Some of the weights, in the order of these numbers. ArtifactError for one that there is not."""
        if not all(type(number) is int and 0 <= number < len(self.arrays) for number in numbers):
            raise ArtifactError(f"{self.file}: a program has a weight that none of the {len(self.arrays)} is")
        chosen = [tuple(held[number] for number in numbers) for held in (self.arrays, self.places, self.digests)]
        return StoredWeights(self.file, *chosen)


def distinct(arrays: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Arrays without those that occur again, and for each array its number among what is left."""
    data = [_encode_texts(array) if array.dtype.hasobject else _bytes_of(array) for array in arrays]
    kept: dict[tuple[str, str, tuple[int, ...]], int] = {}
    found: list[Any] = []
    numbers: list[int] = []
    for array, digest in zip(arrays, _digests(data), strict=True):
        key = digest, str(array.dtype), array.shape
        if key not in kept:
            kept[key] = len(found)
            found.append(array)
        numbers.append(kept[key])
    return found, numbers


def encode_weights(arrays: Sequence[Any]) -> EncodedWeights:
    """The arrays as bytes; strings as JSON."""
    header: dict[str, Json] = {}
    offset = 0
    parts: list[Any] = []
    data = [_encode_texts(array) if array.dtype.hasobject else _bytes_of(array) for array in arrays]
    for number, (array, content) in enumerate(zip(arrays, data, strict=True)):
        padding = -offset % ALIGNMENT
        offset += padding
        header[str(number)] = {
            "dtype": from_numpy(array.dtype).name,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(content)],
        }
        parts += [b"\0" * padding, content]
        offset += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + _LENGTH.size) % ALIGNMENT)
    return EncodedWeights([_LENGTH.pack(len(text)), text, *parts], [sha256_of(text), *_digests(data)])


def decode_weights(member: Any, digests: Json, file: str) -> StoredWeights:
    """The weights in the bytes of a member, whose header is verified, whose tensors are not.

    ArtifactError for a header that is damaged, or that describes other bytes than there are.
    """
    head = member[: _LENGTH.size]
    length = _LENGTH.unpack(head.tobytes())[0] if head.size == _LENGTH.size else 0
    text = member[_LENGTH.size : _LENGTH.size + length]
    header_digest, *tensor_digests = digests
    if sha256_of(text) != header_digest:
        raise ArtifactError(f"{file}: the header of the weights is damaged", hint="compile and save the model again")
    data = member[_LENGTH.size + length :]
    # Code relies on where they begin: a vector that lies elsewhere may end the process.
    if data.size and data.ctypes.data % ALIGNMENT:
        raise ArtifactError(f"{file}: weights do not start at a multiple of {ALIGNMENT} bytes")
    header = json.loads(text.tobytes())
    if not isinstance(header, dict) or len(header) != len(tensor_digests):
        raise ArtifactError(f"{file}: the header of the weights is malformed")
    arrays, places = [], []
    for number in range(len(tensor_digests)):
        entry = header[str(number)]
        type_, shape = dtype(entry["dtype"]), _shape(entry["shape"])
        first, last = entry["data_offsets"]
        count = _count(shape)
        is_sized = type_.is_host_only or count * type_.nbytes == last - first
        if not (0 <= first <= last <= data.size) or first % ALIGNMENT or not is_sized:
            raise ArtifactError(f"{file}: weight {number} is not where it should be, or of another size")
        place = data[first:last]
        places.append(place)
        arrays.append(_decode_texts(place, shape, count) if type_.is_host_only else _viewed(place, type_, shape))
    return StoredWeights(file, tuple(arrays), tuple(places), tuple(map(str, tensor_digests)))


def _shape(data: Json) -> tuple[int, ...]:
    shape = tuple(data)
    if len(shape) > _MAX_RANK or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"{shape} is no shape")
    return shape


def _count(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _viewed(place: Any, type_: DType, shape: Sequence[int]) -> Any:
    return place.view(type_.numpy()).reshape(shape)


def _bytes_of(array: Any) -> Any:
    """The bytes of a contiguous array, as an array."""
    return array.reshape(-1).view(numpy.uint8)


def _digests(data: Sequence[Any]) -> list[str]:
    if len(data) < 2 or sum(len(part) for part in data) < _THREADS_FROM:
        return [sha256_of(part) for part in data]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(sha256_of, data))


def _encode_texts(array: Any) -> bytes:
    """The elements of a tensor of strings as a JSON list; bytes are UTF-8."""
    items = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
    return json.dumps(items).encode()


def _decode_texts(place: Any, shape: Sequence[int], count: int) -> Any:
    items = json.loads(place.tobytes())
    if not isinstance(items, list) or len(items) != count or not all(isinstance(item, str) for item in items):
        raise ValueError(f"a tensor of strings is no list of {count} strings")
    made = numpy.empty(len(items), object)
    made[:] = items
    return made.reshape(shape)
