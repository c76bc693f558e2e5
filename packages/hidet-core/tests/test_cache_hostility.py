"""The kernel cache on file systems that others, or mistakes, have prepared: it never blocks, follows or trusts them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hidet.cache import CacheKey, KernelCache, open_cache
from hidet.errors import CacheWarning

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners, pipes and permission bits are POSIX")

KEY = CacheKey.of(kernel="matmul")
OTHER = CacheKey.of(kernel="softmax")
PAYLOAD = b"machine code" * 100
NOBODY = 65534


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def listener(path: Path) -> None:
    path.unlink()
    place = os.getcwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s")
        os.rename("s", path.name)
    finally:
        os.chdir(place)


def link_to_copy(path: Path) -> None:
    """A good entry of this user, somewhere else."""
    elsewhere = path.parents[2] / "elsewhere"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def link(target: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return make


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def full_folder(path: Path) -> None:
    folder(path)
    (path / "file").touch()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def endless(path: Path) -> None:
    """A terabyte that takes no room on the disk."""
    os.truncate(path, 1 << 40)


def lies_about_its_size(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[28:36] = b"\xff" * 8
    path.write_bytes(data)


def mode(bits: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(bits)


def foreign(path: Path) -> None:
    os.chown(path, NOBODY, -1)


def moved_and_linked(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


def pipe_instead(path: Path) -> None:
    shutil.rmtree(path)
    os.mkfifo(path)


def linked_by_another(path: Path) -> None:
    moved_and_linked(path)
    os.lchown(path, NOBODY, -1)


# What is prepared; where; whether the entry can be stored again afterwards.
HOSTILE: dict[str, tuple[Callable[[Path], None], str, bool]] = {
    "a pipe": (pipe, "entry", True),
    "a socket": (listener, "entry", True),
    "a link to an entry elsewhere": (link_to_copy, "entry", True),
    "a link to nothing": (link("nothing"), "entry", True),
    "a link to endless zeros": (link("/dev/zero"), "entry", True),
    "a link to itself": (link_to_itself, "entry", True),
    "an empty folder": (folder, "entry", False),
    "a folder with a file": (full_folder, "entry", False),
    "an empty file": (empty, "entry", True),
    "a sparse file of a terabyte": (endless, "entry", True),
    "a file that lies about its size": (lies_about_its_size, "entry", True),
    "an entry that its group may write": (mode(0o660), "entry", True),
    "an entry that anyone may write": (mode(0o606), "entry", True),
    "an entry of another user": (foreign, "entry", True),
    "a shard that its group may write": (mode(0o770), "shard", False),
    "a shard that anyone may write": (mode(0o777), "shard", False),
    "a shard of another user": (foreign, "shard", False),
    "a shard that is a link": (moved_and_linked, "shard", False),
    "a shard that is a file": (file_instead, "shard", False),
    "a shard that is a pipe": (pipe_instead, "shard", False),
    "a directory that its group may write": (mode(0o770), "directory", False),
    "a directory that anyone may write": (mode(0o707), "directory", False),
    "a directory of another user": (foreign, "directory", False),
    "a directory that is a file": (file_instead, "directory", False),
    "a directory that is a pipe": (pipe_instead, "directory", False),
    "a directory that is a link of another user": (linked_by_another, "directory", False),
}
NEEDS_ROOT = (foreign, linked_by_another)


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """What blocks fails."""

    def stop(*_: object) -> None:
        raise TimeoutError("the cache blocks")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def entry_of(directory: Path, key: CacheKey) -> Path:
    return directory / key.digest[:2] / f"{key.digest}.entry"


@pytest.mark.parametrize("case", HOSTILE)
def test_what_somebody_else_may_have_written_is_not_read(case: str, tmp_path: Path) -> None:
    """red-team.md findings 10 and 16."""
    prepare, place, can_be_stored = HOSTILE[case]
    if prepare in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    directory = tmp_path / "kernels"
    cache = KernelCache(directory)
    cache.put(KEY, PAYLOAD)
    cache.put(OTHER, PAYLOAD)
    entry = entry_of(directory, KEY)
    prepare({"entry": entry, "shard": entry.parent, "directory": directory}[place])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert cache.get(KEY) is None
        cache.put(KEY, PAYLOAD)
        assert (cache.get(KEY) == PAYLOAD) is can_be_stored
        # One bad entry or shard takes nothing else away.
        assert (cache.get(OTHER) == PAYLOAD) is (place != "directory")
        cache.put(OTHER, PAYLOAD[1:])
        assert (cache.get(OTHER) == PAYLOAD[1:]) is (place != "directory")
        list(cache.entries())
        cache.status()
        cache.prune()
        cache.explain(KEY)
    assert len(caught) <= 2
    assert all(warning.category is CacheWarning for warning in caught)
    if not can_be_stored:
        assert caught, "nothing tells why"


def test_a_link_of_ones_own_to_a_directory_of_ones_own_is_followed(tmp_path: Path) -> None:
    """Caches are moved to larger disks."""
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "kernels").symlink_to(tmp_path / "disk")
    cache = KernelCache(tmp_path / "kernels")
    cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD


@pytest.mark.parametrize("bits", [0o770, 0o707])
def test_a_directory_that_others_may_write_is_reported_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    """red-team.md finding 10."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels").chmod(bits)
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "kernels"))
    with pytest.warns(CacheWarning, match=r"can be written by (its group|anyone).*\n.*chmod go-w"):
        assert open_cache().status().directory is None


def test_clearing_leaves_alone_what_links_lead_to(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "kernels")
    cache.put(KEY, PAYLOAD)
    link_to_copy(entry_of(tmp_path / "kernels", KEY))
    moved_and_linked(tmp_path / "kernels" / KEY.digest[:2])
    cache.clear()
    assert (tmp_path / "elsewhere").exists()
    assert (tmp_path / "kernels" / "elsewhere").exists()


ANOTHER_USER = """
import os, sys, warnings
from pathlib import Path
from hidet.cache import CacheKey, KernelCache, open_cache
os.setgid(65534); os.setuid(65534)
directory, own = Path(sys.argv[1]), Path(sys.argv[2])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    key = CacheKey.of(kernel="matmul")
    opened = open_cache(directory=str(directory))
    print(opened.get(key), KernelCache(directory).get(key), len(caught))
    KernelCache(directory).put(key, b"theirs")
mine = open_cache(directory=str(own))
mine.put(key, b"mine")
print(mine.get(key))
"""


@pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_neither_reads_nor_writes_a_cache_that_is_not_theirs() -> None:
    """red-team.md finding 10, with another account."""
    base = Path(tempfile.mkdtemp())  # pytest's own is closed to others
    base.chmod(0o755)
    try:
        KernelCache(base / "roots").put(KEY, PAYLOAD)
        for path in [base / "roots", *(base / "roots").rglob("*")]:
            path.chmod(0o755)
        (base / "theirs").mkdir()
        os.chown(base / "theirs", NOBODY, NOBODY)
        (base / "theirs").chmod(0o700)
        command = [sys.executable, "-c", ANOTHER_USER, str(base / "roots"), str(base / "theirs")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines() == ["None None 2", "b'mine'"], done.stderr
        assert KernelCache(base / "roots").get(KEY) == PAYLOAD
        with pytest.warns(CacheWarning, match="belongs to another user"):
            assert KernelCache(base / "theirs").get(KEY) is None
    finally:
        shutil.rmtree(base)


def test_temporaries_of_dead_writers_go_soon_and_count_while_they_stay(tmp_path: Path) -> None:
    """red-team.md finding 19."""
    cache = KernelCache(tmp_path)
    cache.put(KEY, PAYLOAD)
    size = cache.status().size
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    written: list[Path] = []
    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", lambda source, target: written.append(Path(source)))
        for process in (done.pid, os.getpid()):
            patched.setattr(os, "getpid", lambda process=process: process)
            cache.put(KEY, PAYLOAD)
    dead, living = written
    assert cache.status().size == 3 * size
    assert cache.status().entries == 1
    for path in written:
        os.utime(path, (time.time() - 120, time.time() - 120))
    assert cache.prune() == size
    assert not dead.exists()
    assert living.exists()
    small = KernelCache(tmp_path, size_cap=int(1.5 * size))
    assert small.prune() == size, "an entry goes for a temporary that is still written"


def test_temporaries_of_other_machines_stay_for_an_hour(tmp_path: Path) -> None:
    """Several share a file system, and numbers of processes are each machine's own."""
    cache = KernelCache(tmp_path)
    cache.put(KEY, PAYLOAD)
    path = entry_of(tmp_path, KEY).with_name(f".{KEY.digest}.00000000.999999.abcd.tmp")
    path.write_bytes(PAYLOAD)
    for age, stays in ((120, True), (7200, False)):
        os.utime(path, (time.time() - age, time.time() - age))
        cache.prune()
        assert path.exists() is stays
