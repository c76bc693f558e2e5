"""The kernel cache: what it promises to readers, to concurrent writers, and on file systems that misbehave."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import hidet
from hidet.cache import CacheKey, KernelCache, open_cache
from hidet.errors import CacheError, CacheWarning

KEY = CacheKey.of(kernel="matmul", arch="x86-64-v3", tile_m=8, tools="llvm 22.1.0")
PAYLOAD = bytes(range(256)) * 40


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


def entry_files(cache: KernelCache) -> list[Path]:
    directory = cache.status().directory
    assert directory is not None
    return sorted(directory.glob("*/*.entry"))


def all_files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def start_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A fresh interpreter that can import hidet from where this one did."""
    search_path = os.pathsep.join(str(Path(folder).parent) for folder in hidet.__path__)
    environment = {**os.environ, "PYTHONPATH": search_path}
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_was_put_is_returned(cache: KernelCache) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD


def test_an_empty_payload_is_not_a_miss(cache: KernelCache) -> None:
    cache.put(KEY, b"")
    assert cache.get(KEY) == b""


def test_a_second_put_replaces_the_first(cache: KernelCache) -> None:
    cache.put(KEY, b"old")
    cache.put(KEY, b"new")
    assert cache.get(KEY) == b"new"
    assert cache.status().entries == 1


def test_keys_do_not_depend_on_the_order_of_their_fields() -> None:
    assert CacheKey.of(a="1", b=2) == CacheKey.of(b=2, a="1")
    assert CacheKey.of(a="1", b=2).digest == CacheKey.of(b=2, a="1").digest


@pytest.mark.parametrize("changed", [{"tile_m": 9}, {"arch": "x86-64-v4"}, {"kernel": "matmu"}, {"extra": None}])
def test_keys_that_differ_in_any_field_have_other_digests(changed: dict[str, str | int | None]) -> None:
    fields: dict[str, str | int | None] = {"kernel": "matmul", "arch": "x86-64-v3", "tile_m": 8, "tools": "llvm 22.1.0"}
    assert CacheKey.of(**{**fields, **changed}).digest != KEY.digest


def test_neighbouring_names_and_values_are_not_confused() -> None:
    assert CacheKey.of(ab="c").digest != CacheKey.of(a="bc").digest


def test_a_key_survives_its_json_form() -> None:
    assert CacheKey.from_json(KEY.to_json()) == KEY


def test_a_new_directory_is_private(cache: KernelCache) -> None:
    cache.put(KEY, PAYLOAD)
    directory = cache.status().directory
    assert directory is not None
    assert directory.stat().st_mode & 0o777 == 0o700
    assert entry_files(cache)[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("position", ["magic", "checksum", "header", "payload"])
def test_a_flipped_bit_is_noticed_and_the_entry_built_again(cache: KernelCache, position: str) -> None:
    cache.put(KEY, PAYLOAD)
    path = entry_files(cache)[0]
    data = bytearray(path.read_bytes())
    data[{"magic": 0, "checksum": 9, "header": 40, "payload": len(data) - 1}[position]] ^= 0x10
    path.write_bytes(data)
    with pytest.warns(CacheWarning, match="damaged"):
        assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD


@pytest.mark.parametrize("kept", [0, 7, 35, 100, -1])
def test_a_truncated_entry_is_noticed_and_deleted(cache: KernelCache, kept: int) -> None:
    cache.put(KEY, PAYLOAD)
    path = entry_files(cache)[0]
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.warns(CacheWarning, match="damaged"):
        assert cache.get(KEY) is None
    assert not path.exists()


def test_an_intact_entry_under_the_name_of_another_key_is_refused(cache: KernelCache) -> None:
    other = CacheKey.of(kernel="conv")
    cache.put(KEY, PAYLOAD)
    cache.put(other, b"other")
    first = next(path for path in entry_files(cache) if path.stem == KEY.digest)
    second = next(path for path in entry_files(cache) if path.stem == other.digest)
    second.write_bytes(first.read_bytes())
    with pytest.warns(CacheWarning, match="damaged"):
        assert cache.get(other) is None


def test_many_damaged_entries_cost_one_warning(cache: KernelCache) -> None:
    keys = [CacheKey.of(index=index) for index in range(5)]
    for key in keys:
        cache.put(key, PAYLOAD)
    for path in entry_files(cache):
        path.write_bytes(b"not an entry")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [cache.get(key) for key in keys] == [None] * 5
    assert [warning.category for warning in caught] == [CacheWarning]


WRITER = """
import sys
from pathlib import Path
from hidet.cache import CacheKey, KernelCache
cache = KernelCache(Path(sys.argv[1]))
key = CacheKey.of(kernel="shared")
payload = b"z" * 200_000
for _ in range(30):
    cache.put(key, payload)
    assert cache.get(key) == payload
print("done")
"""


def test_eight_processes_may_write_one_key_at_once(tmp_path: Path) -> None:
    processes = [start_python(WRITER, str(tmp_path / "kernels")) for _ in range(8)]
    for process in processes:
        output, errors = process.communicate(timeout=60)
        assert (output, errors, process.returncode) == ("done\n", "", 0)
    assert len(all_files(tmp_path)) == 1
    assert KernelCache(tmp_path / "kernels").get(CacheKey.of(kernel="shared")) == b"z" * 200_000


DYING_WRITER = """
import os, sys, time
from pathlib import Path
from hidet.cache import CacheKey, KernelCache
def replace(source, target):
    print("written", flush=True)
    time.sleep(60)
os.replace = replace
KernelCache(Path(sys.argv[1])).put(CacheKey.of(kernel="dying"), b"half")
"""


def test_a_writer_killed_before_it_publishes_leaves_no_entry(tmp_path: Path) -> None:
    process = start_python(DYING_WRITER, str(tmp_path))
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    process.stdout.close()
    process.stderr.close()
    cache = KernelCache(tmp_path)
    key = CacheKey.of(kernel="dying")
    (left_behind,) = all_files(tmp_path)
    assert left_behind.suffix == ".tmp"
    assert cache.get(key) is None
    cache.put(key, b"whole")
    assert cache.get(key) == b"whole"
    cache.prune()
    assert left_behind.exists(), "a young temporary file may belong to a living writer"
    os.utime(left_behind, (time.time() - 7200, time.time() - 7200))
    cache.prune()
    assert not left_behind.exists()
    assert cache.get(key) == b"whole"


def refuse_writes(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def open_for_reading(path: str, flags: int, mode: int = 0o777, **keywords: int) -> int:
        if flags & os.O_WRONLY:
            raise OSError(code, os.strerror(code), path)
        return real_open(path, flags, mode, **keywords)

    monkeypatch.setattr(os, "open", open_for_reading)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_read_only_directory_still_serves_and_costs_one_warning(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    cache.put(KEY, PAYLOAD)
    refuse_writes(code, monkeypatch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in range(3):
            cache.put(CacheKey.of(index=index), PAYLOAD)
    assert [warning.category for warning in caught] == [CacheWarning]
    assert os.strerror(code) in str(caught[0].message)
    assert cache.get(KEY) == PAYLOAD
    assert cache.get(CacheKey.of(index=0)) is None
    assert os.strerror(code) in (cache.status().problem or "")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permission bits do not bind root")
def test_a_directory_without_write_permission_costs_one_warning(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.warns(CacheWarning, match="cannot write"):
            KernelCache(tmp_path).put(KEY, PAYLOAD)
    finally:
        tmp_path.chmod(0o700)


def test_a_place_where_no_directory_can_be_made_costs_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file" / "kernels")
    with pytest.warns(CacheWarning, match="cannot write"):
        cache.put(KEY, PAYLOAD)
    cache.put(KEY, PAYLOAD)


FULL_DISK_WRITER = """
import resource, sys, warnings
from pathlib import Path
from hidet.cache import CacheKey, KernelCache
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
cache = KernelCache(Path(sys.argv[1]))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for index in range(3):
        cache.put(CacheKey.of(index=index), b"z" * 100_000)
        assert cache.get(CacheKey.of(index=index)) is None
print([warning.category.__name__ for warning in caught])
"""


def test_a_write_that_the_system_cuts_off_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    output, errors = start_python(FULL_DISK_WRITER, str(tmp_path)).communicate(timeout=60)
    assert (output, errors) == ("['CacheWarning']\n", "")
    assert all_files(tmp_path) == []


def test_a_full_disk_costs_one_warning_and_leaves_nothing_behind(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left"):
        cache.put(KEY, PAYLOAD)
    cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) is None
    directory = cache.status().directory
    assert directory is not None and all_files(directory) == []


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, size_cap=1 << 30)
    keys = [CacheKey.of(index=index) for index in range(6)]
    for seconds, key in zip((6000, 5000, 4000, 3000, 2000, 1000), keys, strict=True):
        cache.put(key, PAYLOAD)
        age(tmp_path / key.digest[:2] / f"{key.digest}.entry", seconds)
    assert cache.get(keys[0]) == PAYLOAD, "a read makes the oldest entry the newest"
    small = KernelCache(tmp_path, size_cap=4 * (len(PAYLOAD) + 100))
    assert small.prune() > 0
    assert [small.get(key) is not None for key in keys] == [True, False, False, False, True, True]


def test_writing_keeps_the_total_near_the_cap(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, size_cap=20 * len(PAYLOAD))
    for index in range(100):
        cache.put(CacheKey.of(index=index), PAYLOAD)
    assert cache.status().size <= 1.2 * 20 * len(PAYLOAD)
    assert cache.get(CacheKey.of(index=99)) == PAYLOAD


def test_status_counts_entries_bytes_hits_and_misses(cache: KernelCache) -> None:
    cache.get(KEY)
    cache.put(KEY, PAYLOAD)
    cache.get(KEY)
    cache.get(KEY)
    status = cache.status()
    assert (status.entries, status.hits, status.misses, status.problem) == (1, 2, 1, None)
    assert len(PAYLOAD) < status.size < len(PAYLOAD) + 300


def test_clear_deletes_all_entries_and_nothing_else(cache: KernelCache) -> None:
    for index in range(4):
        cache.put(CacheKey.of(index=index), PAYLOAD)
    directory = cache.status().directory
    assert directory is not None
    (directory / "notes.txt").write_text("mine")
    assert cache.clear() == 4
    assert cache.status().entries == 0
    assert [path.name for path in all_files(directory)] == ["notes.txt"]


def test_explain_names_the_field_in_which_the_nearest_entry_differs(cache: KernelCache) -> None:
    cache.put(CacheKey.of(kernel="softmax", arch="x86-64-v3", tools="llvm 22.1.0"), PAYLOAD)
    cache.put(CacheKey.of(kernel="matmul", arch="x86-64-v3", tools="llvm 21.0.0"), PAYLOAD)
    explanation = cache.explain(CacheKey.of(kernel="matmul", arch="x86-64-v3", tools="llvm 22.2.0", option="fast"))
    assert not explanation.found
    assert [(difference.name, difference.wanted, difference.stored) for difference in explanation.differences] == [
        ("option", "fast", None),
        ("tools", "llvm 22.2.0", "llvm 21.0.0"),
    ]
    assert "tools: 'llvm 22.2.0', there 'llvm 21.0.0'" in str(explanation)


def test_explain_of_a_stored_key_compares_with_another_entry(cache: KernelCache) -> None:
    cache.put(KEY, PAYLOAD)
    assert cache.explain(KEY).nearest is None
    cache.put(CacheKey.of(**{**dict(KEY.fields), "arch": "x86-64-v4"}), PAYLOAD)
    explanation = cache.explain(KEY)
    assert explanation.found
    assert [difference.name for difference in explanation.differences] == ["arch"]


def test_an_entry_is_found_by_the_first_digits_of_its_digest(cache: KernelCache) -> None:
    cache.put(KEY, PAYLOAD)
    assert cache.find(KEY.digest[:8]) == KEY
    with pytest.raises(CacheError, match=r"no digest of an entry starts with 'zz'"):
        cache.find("zz")


def test_a_disabled_cache_stores_nothing() -> None:
    cache = open_cache(enabled=False)
    cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) is None
    assert cache.status().directory is None


def test_the_environment_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "here"))
    cache = open_cache()
    assert cache.status().directory == tmp_path / "here"
    assert open_cache() is cache


def test_without_the_environment_the_platform_names_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("HIDET_CACHE_DIR", raising=False)
    assert open_cache(size_cap=1).status().directory == platformdirs.user_cache_path("hidet")


@pytest.mark.skipif(os.name != "posix", reason="owners and permission bits are POSIX")
def test_a_directory_of_another_user_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "foreign"
    KernelCache(directory).put(KEY, PAYLOAD)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    monkeypatch.setenv("HIDET_CACHE_DIR", str(directory))
    with pytest.warns(CacheWarning, match="belongs to another user"):
        cache = open_cache()
    assert cache.get(KEY) is None
    assert "another user" in (cache.status().problem or "")
    with pytest.warns(CacheWarning, match="belongs to another user"):
        assert KernelCache(directory).get(KEY) is None, "not even single entries of another user are read"


@pytest.mark.skipif(os.name != "posix", reason="owners and permission bits are POSIX")
def test_a_directory_that_anyone_may_write_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(0o777)
    monkeypatch.setenv("HIDET_CACHE_DIR", str(directory))
    with pytest.warns(CacheWarning, match="written by anyone"):
        cache = open_cache()
    cache.put(KEY, PAYLOAD)
    assert all_files(directory) == []


def test_a_file_in_place_of_the_directory_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("")
    monkeypatch.setenv("HIDET_CACHE_DIR", str(path))
    with pytest.warns(CacheWarning, match="not a directory"):
        assert open_cache().get(KEY) is None
