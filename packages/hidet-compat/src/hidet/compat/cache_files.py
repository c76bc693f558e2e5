"""Files beside the kernel cache, as `hidet.utils` of hidet 0.6 has them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hidet import option
from hidet.cache import open_cache
from hidet.errors import OptionError


def cache_dir(*items: str) -> str:
    """A directory below that of the cache, which is made where it is not there."""
    path = Path(option.get_cache_dir(), *items)
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


def cache_file(*items: str) -> str:
    """A file in such a directory, which need not be there."""
    return os.path.join(cache_dir(*items[:-1]), items[-1])


def clear_op_cache() -> None:
    """Delete all that was compiled: `hidet cache clear`."""
    open_cache(directory=str(option.get_cache_dir())).clear()


def clear_cache_dir(*items: str) -> None:
    """Delete a directory below that of the cache. OptionError without a name: `clear_op_cache` empties the cache."""
    if not items:
        raise OptionError("clear_cache_dir without a directory", hint="hidet.utils.clear_op_cache empties the cache")
    shutil.rmtree(Path(option.get_cache_dir(), *items), ignore_errors=True)
