"""Files and directories that nobody but this user may write to: native code is read from no others."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_OPEN = os.O_RDONLY
# No symbolic link is followed, and pipes and devices open without waiting for anybody.
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _OPEN |= getattr(os, _name, 0)


def distrust(info: os.stat_result) -> str | None:
    """Why what `info` describes may hold what another user has written; None where nobody else can have."""
    if os.name != "posix":
        return None
    if info.st_uid != os.geteuid():
        return f"belongs to another user (id {info.st_uid})"
    if info.st_mode & stat.S_IWOTH:
        return "can be written by anyone"
    return "can be written by its group" if info.st_mode & stat.S_IWGRP else None


def distrust_directory(directory: Path, *, may_be_link: bool) -> str | None:
    """Why files must not be read from `directory`; None where they may, and where there is nothing yet.

    may_be_link: a symbolic link of this user, or of root, to a directory of this user is as good.
    """
    try:
        info = os.lstat(directory)
        if stat.S_ISLNK(info.st_mode) and may_be_link:
            if os.name == "posix" and info.st_uid not in (os.geteuid(), 0):
                return f"belongs to another user (id {info.st_uid})"
            info = os.stat(directory)
    except OSError:
        return None
    return distrust(info) if stat.S_ISDIR(info.st_mode) else "is not a directory"


def open_private(path: Path | str) -> tuple[int, os.stat_result]:
    """A descriptor of a regular file for reading, and what it is. PermissionError for a file that is not trusted.

    OSError where there is none, or something else; symbolic links are not followed.
    """
    descriptor = os.open(path, _OPEN)
    try:
        info = os.fstat(descriptor)
        reason = distrust(info) if stat.S_ISREG(info.st_mode) else "is no regular file"
        if reason is not None:
            raise PermissionError(f"it {reason}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, info


def publish(temporary: Path, path: Path, data: bytes) -> None:
    """Write a file aside, readable by this user alone, and rename it to `path`: readers see all of it or what was there
    before. OSError where that fails, with `temporary` gone."""
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except PermissionError:
        # Windows refuses to replace a file that a reader has open; its content is what we would have written.
        _delete(temporary)
        if os.name != "nt" or not path.exists():
            raise
    except OSError:
        _delete(temporary)
        raise


def make_private(directory: Path) -> None:
    """Make a directory, and what is missing above it, that this user alone may enter. OSError where it cannot be."""
    if directory.is_dir():
        return
    if not directory.parent.is_dir():
        make_private(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
