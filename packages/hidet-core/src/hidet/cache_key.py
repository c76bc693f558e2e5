"""What a cached kernel depends on, field by field: the name under which `hidet.cache` stores it."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_INSTALLED = {"site-packages", "dist-packages"}
"""Folders that wheels are installed into."""


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


def code_hash(module: str) -> str:
    """What names the code of an imported module, and of the package that it is in, besides a version: `source_hash`.

    Nothing tells whether code in no file, such as a notebook's, is what it was: its name is another one at every call.
    """
    package = module.partition(".")[0]
    try:
        return source_hash(package)
    except (ModuleNotFoundError, ValueError):
        # The script that Python runs, and modules under names of somebody's own.
        file = getattr(sys.modules.get(module), "__file__", None)
    return os.urandom(16).hex() if file is None else _digest([Path(file)], Path(file).parent)


@functools.cache
def source_hash(package: str) -> str:
    """Digest of the sources of an importable `package` that is installed editable; "" for one that came from a wheel.

    A wheel's code is named by its version, edited sources only by themselves. Covers name, size and modification time
    of each .py file under every folder of the package, or of the one file that it is; computed once a process. Raises
    ModuleNotFoundError for unknown names.
    """
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    digests = ""
    for folder in map(Path, sorted(spec.submodule_search_locations or ())):
        if not _INSTALLED & set(folder.parts):
            digests += _digest(folder.rglob("*.py"), folder)
    if spec.submodule_search_locations is None and spec.origin is not None and spec.origin.endswith(".py"):
        file = Path(spec.origin)
        digests += "" if _INSTALLED & set(file.parts) else _digest([file], file.parent)
    return hashlib.blake2b(digests.encode(), digest_size=16).hexdigest() if digests else ""


def _digest(files: Iterable[Path], folder: Path) -> str:
    """Of names below `folder`, sizes and modification times; "" without files."""
    described = []
    for path in sorted(files):
        info = path.stat()
        described.append(f"{path.relative_to(folder)}\0{info.st_size}\0{info.st_mtime_ns}\n")
    return hashlib.blake2b("".join(described).encode(), digest_size=16).hexdigest() if described else ""
