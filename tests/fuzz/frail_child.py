"""A child whose device stops at case 2, and which dies at case 4; for `test_children.py`."""

from __future__ import annotations

import os

from tests.fuzz.children import End, serve

MODULE = "tests.fuzz.frail_child"
seen: list[int] = []


def end_of(base: str, content: str, seed: int) -> End:
    """Say which cases this process has had."""
    seen.append(seed)
    if seed == 4:
        os.abort()
    return End(base, seed, "ran", f"cases {seen}")


if __name__ == "__main__":
    serve(end_of, is_device_usable=lambda: 2 not in seen)
