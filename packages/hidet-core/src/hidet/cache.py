"""Content-addressed disk cache of compiled kernels, shared by all processes of one user.

Sits between code generation and loading: a target calls `get(key)` before it compiles and `put(key, payload)` after.
An entry is one file named by the digest of its key. It is written aside and published by one rename, so that readers
on any file system see a whole entry or none. A checksum covers all of it: a damaged entry is deleted and built again.
Payloads are opaque bytes, keys are text; nothing is ever unpickled. They are native code, so nothing is read that
another user may have written (`hidet.private_files`). A directory that cannot be used costs a warning, never an error.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import platform
import struct
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hidet.cache_key import CacheKey, code_hash, source_hash
from hidet.errors import CacheError, CacheWarning
from hidet.private_files import distrust_directory, make_private, open_private, publish

__all__ = [
    "DEFAULT_SIZE_CAP",
    "CacheEntry",
    "CacheExplanation",
    "CacheKey",
    "CacheStatus",
    "FieldDifference",
    "KernelCache",
    "code_hash",
    "open_cache",
    "source_hash",
]

DEFAULT_SIZE_CAP = 2 << 30
"""Bytes that entries may take before the least recently used ones are deleted."""

_MAGIC = b"HIDETKC1"
_PREFIX = struct.Struct("<8s16sIQ")  # magic, checksum of all that follows the prefix, header bytes, payload bytes
_ENTRY_SUFFIX = ".entry"
_TEMPORARY_SUFFIX = ".tmp"
_OWN_SUFFIXES = (_ENTRY_SUFFIX, _TEMPORARY_SUFFIX)
_ABANDONED_AFTER_S = 3600.0  # a temporary file this old belongs to a writer that died
_DEAD_AFTER_S = 60.0  # so does one this old whose process this machine does not have; containers have their own numbers
_IN_THE_WAY = (errno.EEXIST, errno.EISDIR, errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.ELOOP)
_TOUCH_AFTER_S = 600.0  # reads refresh the modification time at most this often, to spare network file systems
_LARGEST_ENTRY = 1 << 30  # bytes of an entry that is read even where less may be kept
_PRUNE_TO = 0.9  # pruning goes below the cap, so that the next few writes need none


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One stored payload, as listed by `KernelCache.entries`."""

    key: CacheKey
    path: Path
    size: int  # bytes of the whole file
    used: float  # seconds since the epoch of the last write or (to within ten minutes) read


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """What `hidet cache status` prints."""

    directory: Path | None  # None: caching is off
    entries: int
    size: int  # bytes
    size_cap: int  # bytes
    hits: int  # of this process
    misses: int  # of this process
    problem: str | None  # why caching does not work, or only for reading


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A key field in which the nearest entry differs; None means that the side lacks the field."""

    name: str
    wanted: str | None
    stored: str | None


@dataclass(frozen=True, slots=True)
class CacheExplanation:
    """Whether `key` is stored, and how the most similar other entry differs."""

    key: CacheKey
    found: bool
    nearest: CacheEntry | None  # None: there is no other entry
    differences: tuple[FieldDifference, ...]

    def __str__(self) -> str:
        lines = [f"{self.key.digest}: {'stored' if self.found else 'not stored'}"]
        if self.nearest is None:
            lines.append("no other entry to compare with")
        else:
            lines.append(f"nearest other entry {self.nearest.key.digest} differs in:")
            for difference in self.differences:
                lines.append(f"  {difference.name}: {difference.wanted!r}, there {difference.stored!r}")
        return "\n".join(lines)


class KernelCache:
    """A directory of entries. All methods are safe in several threads and processes at once.

    directory: where entries live, owned by this user; created (mode 0700) by the first `put`. None: nothing is cached.
    size_cap: bytes beyond which the least recently used entries are deleted.
    problem: why `directory` is None although caching was asked for; it is the text that `status` shows.
    """

    def __init__(self, directory: Path | None, size_cap: int = DEFAULT_SIZE_CAP, *, problem: str | None = None) -> None:
        self._directory = directory
        self._size_cap = size_cap
        self._problem = problem
        self._hits = 0
        self._misses = 0
        self._unpruned = 0  # bytes written since this process last looked at the total size
        self._warned: set[str] = set()

    @property
    def is_on(self) -> bool:
        """Whether anything may be found."""
        return self._directory is not None

    def get(self, key: CacheKey) -> bytes | None:
        """The payload stored under `key`; None if there is none, or none that is intact."""
        payload = None if self._directory is None else self._read(self._path(key), key)
        if payload is None:
            self._misses += 1
        else:
            self._hits += 1
        return payload

    def put(self, key: CacheKey, payload: bytes) -> None:
        """Store `payload` under `key`. A directory that is read-only or full costs one warning and stores nothing."""
        if self._directory is None or self._problem is not None:
            return
        path = self._path(key)
        if not self._is_trusted(path.parent):
            return
        name = f".{path.stem}.{_machine()}.{os.getpid()}.{os.urandom(4).hex()}{_TEMPORARY_SUFFIX}"
        data = _encode(key, payload)
        try:
            make_private(path.parent)
            publish(path.with_name(name), path, data)
        except OSError as error:
            if error.errno in _IN_THE_WAY and self._directory.is_dir():
                self._warn("in the way", f"cannot write {path}: {error.strerror}", "delete what is in its place")
                return
            self._problem = f"cannot write to {self._directory}: {error.strerror or error}"
            self._warn("unwritable", self._problem, "kernels are compiled again in every process; set HIDET_CACHE_DIR")
            return
        self._unpruned += len(data)
        # Long-lived writers count their bytes; of short-lived ones every 64th entry, by its digest, triggers a look.
        if self._unpruned > self._size_cap // 16 or int(path.stem[:2], 16) < 4:
            self.prune()

    def prune(self) -> int:
        """Delete the least recently used entries beyond the cap and what dead writers left. Returns bytes freed."""
        self._unpruned = 0
        now = time.time()
        entries: list[tuple[float, int, str]] = []
        freed = total = 0
        for item in self._files():
            try:
                info = item.stat(follow_symlinks=False)
            except OSError:
                continue
            if item.name.endswith(_ENTRY_SUFFIX):
                entries.append((info.st_mtime, info.st_size, item.path))
            elif not item.name.endswith(_TEMPORARY_SUFFIX):
                continue
            elif _is_abandoned(item.name, now - info.st_mtime) and _delete(item.path):
                freed += info.st_size
                continue
            # What is being written counts, too.
            total += info.st_size
        if total > self._size_cap:
            for _, size, path in sorted(entries):
                if total <= self._size_cap * _PRUNE_TO:
                    break
                total -= size
                freed += size if _delete(path) else 0
        return freed

    def clear(self) -> int:
        """Delete all entries. Returns how many there were."""
        deleted = [item for item in self._files() if item.name.endswith(_OWN_SUFFIXES) and _delete(item.path)]
        return sum(item.name.endswith(_ENTRY_SUFFIX) for item in deleted)

    def status(self) -> CacheStatus:
        """Counts and sizes now."""
        entries = size = 0
        for item in self._files():
            if item.name.endswith(_OWN_SUFFIXES):
                with contextlib.suppress(OSError):
                    size += item.stat(follow_symlinks=False).st_size
                    entries += item.name.endswith(_ENTRY_SUFFIX)
        return CacheStatus(self._directory, entries, size, self._size_cap, self._hits, self._misses, self._problem)

    def entries(self) -> Iterator[CacheEntry]:
        """All readable entries, in no particular order; only their headers are read."""
        for item in self._files():
            if not item.name.endswith(_ENTRY_SUFFIX):
                continue
            try:
                descriptor, info = open_private(item.path)
                with open(descriptor, "rb") as file:
                    magic, _, header_size, _ = _PREFIX.unpack(file.read(_PREFIX.size))
                    if magic == _MAGIC and header_size <= info.st_size:
                        yield CacheEntry(
                            CacheKey.from_json(file.read(header_size)), Path(item.path), info.st_size, info.st_mtime
                        )
            except (OSError, ValueError, struct.error):
                continue  # deleted meanwhile, or damaged: `get` deals with it when the entry is wanted

    def find(self, digest: str) -> CacheKey:
        """The key of the entry whose digest starts with `digest`. Raises CacheError if there is not exactly one."""
        keys = [entry.key for entry in self.entries() if entry.path.stem.startswith(digest)]
        if len(keys) != 1:
            problem = "no digest of an entry starts" if not keys else f"digests of {len(keys)} entries start"
            raise CacheError(
                f"{problem} with {digest!r} in the kernel cache at {self._directory}, expected exactly one",
                hint="give more digits" if keys else "`hidet cache status` shows the directory in use",
            )
        return keys[0]

    def explain(self, key: CacheKey) -> CacheExplanation:
        """Why `key` is or was not served by another entry: the fields in which the most similar one differs."""
        others = [entry for entry in self.entries() if entry.key != key]
        found = self._directory is not None and self._path(key).exists()
        if not others:
            return CacheExplanation(key, found, None, ())
        nearest = min(others, key=lambda entry: (len(_differences(key, entry.key)), -entry.used))
        return CacheExplanation(key, found, nearest, _differences(key, nearest.key))

    def _path(self, key: CacheKey) -> Path:
        assert self._directory is not None
        digest = key.digest
        return self._directory / digest[:2] / (digest + _ENTRY_SUFFIX)

    def _files(self) -> Iterator[os.DirEntry[str]]:
        if self._directory is None:
            return
        for shard in _list_directory(self._directory):
            if len(shard.name) == 2 and shard.is_dir(follow_symlinks=False):
                yield from _list_directory(shard.path)

    def _is_trusted(self, shard: Path) -> bool:
        """Whether nobody else may write to the directory, and to the part of it that is meant."""
        assert self._directory is not None
        reason, place = distrust_directory(self._directory, may_be_link=True), self._directory
        if reason is None:
            reason, place = distrust_directory(shard, may_be_link=False), shard
        if reason is not None:
            self._warn("distrusted", f"{place} of the kernel cache {reason}, so it is ignored", _advice(reason))
        return reason is None

    def _read(self, path: Path, key: CacheKey) -> bytes | None:
        try:
            if not self._is_trusted(path.parent):
                return None
            descriptor, info = open_private(path)
            with open(descriptor, "rb") as file:
                # What a file says is as long as the file, or nothing of it is read.
                prefix = file.read(_PREFIX.size)
                is_whole = len(prefix) == _PREFIX.size and sum(_PREFIX.unpack(prefix)[2:], _PREFIX.size) == info.st_size
                is_whole = is_whole and info.st_size <= max(self._size_cap, _LARGEST_ENTRY)
                payload = _decode(prefix + file.read(), key) if is_whole else None
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("unreadable", f"cannot read {path}: {error.strerror or error}", "the kernel is compiled again")
            return None
        if payload is None:
            _delete(path)
            self._warn("damaged", f"entry {path} of the kernel cache is damaged", "it was deleted and is built again")
            return None
        if time.time() - info.st_mtime > _TOUCH_AFTER_S:
            # The time of last use is only a hint for pruning; a read-only directory still serves its entries.
            with contextlib.suppress(OSError):
                os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)
        return payload

    def _warn(self, kind: str, message: str, hint: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(CacheWarning(message, hint=hint), stacklevel=3)


def open_cache(enabled: bool = True, size_cap: int = DEFAULT_SIZE_CAP, directory: str | None = None) -> KernelCache:
    """The cache of this user; the same object for the same settings throughout a process.

    directory: None for HIDET_CACHE_DIR if set, else the platform's user cache directory. Entries are native code, so it
    is ignored, with one warning, when another user owns it or may write to it. With enabled=False nothing is read or
    written.
    """
    if not enabled:
        return KernelCache(None, size_cap)
    return _open_directory(directory or os.environ.get("HIDET_CACHE_DIR", ""), size_cap)


def cache_directory(override: str = "") -> Path:
    """The directory that `override` names; the platform's user cache directory for ""."""
    if override:
        return Path(override).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("hidet")


@functools.cache
def _open_directory(override: str, size_cap: int) -> KernelCache:
    directory = cache_directory(override)
    reason = distrust_directory(directory, may_be_link=True)
    if reason is not None:
        problem = f"the kernel cache {directory} {reason}, so it is ignored"
        warnings.warn(CacheWarning(problem, hint=_advice(reason)), stacklevel=3)
        return KernelCache(None, size_cap, problem=problem)
    return KernelCache(directory, size_cap)


def _encode(key: CacheKey, payload: bytes) -> bytes:
    header = key.to_json()
    return _PREFIX.pack(_MAGIC, _checksum(header, payload), len(header), len(payload)) + header + payload


def _decode(data: bytes, key: CacheKey) -> bytes | None:
    """The payload of an intact entry of `key`, else None."""
    if len(data) < _PREFIX.size:
        return None
    magic, checksum, header_size, payload_size = _PREFIX.unpack_from(data)
    start = _PREFIX.size + header_size
    if magic != _MAGIC or len(data) != start + payload_size:
        return None
    header, payload = data[_PREFIX.size : start], data[start:]
    return payload if header == key.to_json() and checksum == _checksum(header, payload) else None


def _checksum(header: bytes, payload: bytes) -> bytes:
    digest = hashlib.blake2b(header, digest_size=16)
    digest.update(payload)
    return digest.digest()


def _advice(reason: str) -> str:
    is_own = "can be written" in reason
    return "chmod go-w takes the permission away" if is_own else "set HIDET_CACHE_DIR to a directory of your own"


@functools.cache
def _machine() -> str:
    """A short name of this machine, for file systems that several share."""
    return hashlib.blake2b(platform.node().encode(), digest_size=4).hexdigest()


def _is_abandoned(name: str, age: float) -> bool:
    """Whether the writer of a temporary file has died. age: seconds since it wrote last."""
    _, _, machine, process, *_ = [*name.split("."), "", "", ""]
    if age > _ABANDONED_AFTER_S or machine != _machine() or not process.isdigit():
        return age > _ABANDONED_AFTER_S
    return age > _DEAD_AFTER_S and not _is_alive(int(process))


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # of another user
    return True


def _list_directory(directory: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as items:
            return list(items)
    except OSError:
        return []


def _delete(path: Path | str) -> bool:
    """Delete a file; False if it was gone already or may not be deleted."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _differences(wanted: CacheKey, stored: CacheKey) -> tuple[FieldDifference, ...]:
    left, right = dict(wanted.fields), dict(stored.fields)
    names = sorted(left.keys() | right.keys())
    return tuple(
        FieldDifference(name, left.get(name), right.get(name)) for name in names if left.get(name) != right.get(name)
    )
