"""Version clauses as wheel metadata writes them."""

from __future__ import annotations

import pytest

from hidet.plugins.requirement import unmet_requirement


@pytest.mark.parametrize(
    ("requirement", "version", "holds"),
    [
        ("hidet-core", "0.1.0", True),
        ("hidet-core>=0.1,<0.2", "0.1.0", True),
        ("hidet-core>=0.1,<0.2", "0.1", True),
        ("hidet-core<0.2,>=0.1", "0.2.0", False),
        ("hidet-core (>=0.2)", "0.10.1", True),
        ("hidet_core>=0.3", "0.2.9", False),
        ("Hidet.Core[extra]>=0.3 ; python_version > '3'", "0.2.9", False),
        ("hidet-core==0.1", "0.1.0", True),
        ("hidet-core==0.1.*", "0.1.7", True),
        ("hidet-core==0.1.*", "0.2", False),
        ("hidet-core!=0.1.*", "0.1.7", False),
        ("hidet-core!=0.1.3", "0.1.7", True),
        ("hidet-core~=1.4.2", "1.4.9", True),
        ("hidet-core~=1.4.2", "1.5.0", False),
        ("hidet-core~=1.4.2", "1.4.1", False),
        ("hidet-core>0.1", "0.1.0", False),
        ("hidet-core<=0.1", "0.1.0", True),
        ("hidet-core-extras>=9", "0.1.0", True),
        ("hidet-core===exactly", "0.1.0", True),
    ],
)
def test_a_clause_holds_or_not(requirement, version, holds) -> None:
    assert (unmet_requirement([requirement], "hidet-core", version) is None) == holds


def test_the_broken_clauses_are_returned_as_written() -> None:
    assert unmet_requirement(["numpy>=99", "hidet-core>=0.3,<0.4"], "hidet-core", "0.1.0") == ">=0.3,<0.4"
