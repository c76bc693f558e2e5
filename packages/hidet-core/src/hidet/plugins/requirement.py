"""Does a plug-in's declared requirement on hidet-core hold? Editable trees and PYTHONPATH bypass the installer's check.

Handles release numbers with the comparison operators of the packaging specification ("Version specifiers"); text it
does not understand counts as satisfied, because the installer is the one that decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;.*)?")
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*v?(\d+(?:\.\d+)*)(\.\*)?")

Release = tuple[int, ...]


def unmet_requirement(requires: Iterable[str], distribution: str, version: str) -> str | None:
    """The version clauses on `distribution` among `requires` that `version` breaks; None when there are none.

    requires: requirement strings as in wheel metadata, e.g. `hidet-core<0.2,>=0.1`.
    """
    for requirement in requires:
        parsed = _REQUIREMENT.fullmatch(requirement)
        if parsed is None or _normalised(parsed[1]) != _normalised(distribution):
            continue
        clauses = [clause.strip() for clause in parsed[2].split(",") if clause.strip()]
        if not all(_holds(clause, version) for clause in clauses):
            return ",".join(clauses)
    return None


def required(requires: Iterable[str]) -> list[str]:
    """The distributions that requirement strings name for every machine: those with a marker are left out."""
    parsed = [_REQUIREMENT.fullmatch(requirement) for requirement in requires if ";" not in requirement]
    return [_normalised(found[1]) for found in parsed if found is not None]


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _release(version: str) -> Release | None:
    digits = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in digits[1].split(".")) if digits else None


def _padded(release: Release, length: int) -> Release:
    return release + (0,) * (length - len(release))


def _compatible(have: Release, want: Release) -> bool:
    """`~= 1.4.2`: at least 1.4.2 and still 1.4."""
    prefix = len(want) - 1
    return have >= _padded(want, len(have)) and _padded(have, prefix)[:prefix] == want[:prefix]


_COMPARE: Mapping[str, Callable[[Release, Release], bool]] = {
    "==": lambda have, want: have == want,
    "!=": lambda have, want: have != want,
    "<=": lambda have, want: have <= want,
    ">=": lambda have, want: have >= want,
    "<": lambda have, want: have < want,
    ">": lambda have, want: have > want,
}


def _holds(clause: str, version: str) -> bool:
    parsed = _CLAUSE.fullmatch(clause)
    have = _release(version)
    if parsed is None or have is None:
        return True
    operator, want = parsed[1], _release(parsed[2])
    assert want is not None  # the clause's own pattern demands a release
    if operator == "~=":
        return _compatible(have, want)
    if parsed[3]:  # `== 1.4.*` and `!= 1.4.*` compare the prefix only
        have = _padded(have, len(want))[: len(want)]
    length = max(len(have), len(want))
    return _COMPARE[operator](_padded(have, length), _padded(want, length))
