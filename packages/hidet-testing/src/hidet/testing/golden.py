"""Texts that tests expect, in files beside them."""

from __future__ import annotations

import os
import re
from pathlib import Path

_DIGEST = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{16,}(?![0-9A-Za-z])")


def assert_golden(text: str, file: Path) -> None:
    """Assert that a text is what `file` holds; with HIDET_ACCEPT=1 write it there first, to be reviewed as a diff."""
    if os.environ.get("HIDET_ACCEPT") == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    expected = file.read_text(encoding="utf-8") if file.exists() else ""
    assert text == expected, f"{file.name} differs; HIDET_ACCEPT=1 accepts what is new"


def without_digests(text: str) -> str:
    """The text with # for each group of at least 16 hexadecimal digits, which change with what they stand for."""
    return _DIGEST.sub("#", text)
