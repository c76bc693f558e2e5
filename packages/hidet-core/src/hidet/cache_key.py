"""What a cached kernel depends on, field by field: the name under which `hidet.cache` stores it."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Everything that a payload depends on, as named fields sorted by name."""

    fields: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, **fields: str | int | bool | None) -> CacheKey:
        """A key from named fields; values that are not text are stored as their Python literal."""
        texts = ((name, value if isinstance(value, str) else repr(value)) for name, value in fields.items())
        return cls(tuple(sorted(texts)))

    @property
    def digest(self) -> str:
        """40 hexadecimal digits (BLAKE2b-160, RFC 7693) that name the entry."""
        return hashlib.blake2b(self.to_json(), digest_size=20).hexdigest()

    def to_json(self) -> bytes:
        """The canonical form: what the digest covers and what an entry carries as its header."""
        return json.dumps(self.fields, ensure_ascii=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, header: bytes) -> CacheKey:
        """Inverse of `to_json`. Raises ValueError for anything else."""
        pairs = json.loads(header)
        if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise ValueError("a cache key is a list of [name, value] pairs")
        return cls(tuple((str(name), str(value)) for name, value in pairs))


@functools.cache
def source_hash(package: str) -> str:
    """Digest of the sources of an importable `package` that is installed editable; "" for one that came from a wheel.

    A wheel's code is named by its version, edited sources only by themselves. Covers name, size and modification time
    of each .py file under every folder of the package; computed once a process. Raises ModuleNotFoundError for unknown
    names.
    """
    import importlib.util

    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    digest = hashlib.blake2b(digest_size=16)
    has_sources = False
    for folder in sorted(spec.submodule_search_locations or ()):
        if {"site-packages", "dist-packages"} & set(Path(folder).parts):
            continue
        for path in sorted(Path(folder).rglob("*.py")):
            info = path.stat()
            digest.update(f"{path.relative_to(folder)}\0{info.st_size}\0{info.st_mtime_ns}\n".encode())
            has_sources = True
    return digest.hexdigest() if has_sources else ""
