"""Every defect that was reported of hidet has a test whose docstring names it.

The reports are four documents, which are not kept here; this holds what is numbered in them. A docstring names a defect
by its document and number: "defects.md C1 and W2", "red-team.md findings 4 and 14", "user-walk.md bug 3", "user-walk.md
section 6, row 10", "plugin-friction.md bug 7", or, for operators that ran in torch where other compilers had kernels,
"defects.md, left to torch: frexp, ldexp."
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NUMBER = r"[A-Z]?\d+[a-z]?"
LISTED = rf"({NUMBER}(?:(?:, | and ){NUMBER})*)"
FORMS = {
    "defects.md": rf"defects\.md {LISTED}",
    "red-team.md finding": rf"red-team\.md findings? {LISTED}",
    "user-walk.md bug": rf"user-walk\.md bugs? {LISTED}",
    "user-walk.md section 6, row": rf"user-walk\.md section 6, rows? {LISTED}",
    "plugin-friction.md bug": rf"plugin-friction\.md bugs? {LISTED}",
}
LEFT_TO_TORCH = r"defects\.md, left to torch: ((?:[^.]|\.\w)+)"


def numbers(last: int) -> list[str]:
    return [str(number) for number in range(1, last + 1)]


REPORTED = {
    "defects.md": ["W1", "W2", *(f"C{number}" for number in numbers(12)), "D1", "D2", "G1", "G2", "G3"],
    "red-team.md finding": [*numbers(19), "9b"],
    "user-walk.md bug": numbers(8),
    "user-walk.md section 6, row": numbers(13),
    "plugin-friction.md bug": numbers(11),
    "left to torch": [
        *("i0", "i1e", "bessel_y0", "bessel_y1", "modified_bessel_k0", "chebyshev_polynomial_u"),
        *("shifted_chebyshev_polynomial_t", "frexp", "ldexp", "angle", "fft", "corrcoef", "cov", "combinations"),
        *("searchsorted", "bucketize", "resize_as_", "embedding_bag", "segment_reduce", "histc", "view.dtype"),
        *("view_as_real", "view_as_complex", "complex add", "complex mul", "fractional_max_pool2d", "linear algebra"),
        *("_transformer_encoder_layer_fwd", "TransformerEncoder", "Transformer", "grouped_mm"),
    ],
}


def docstrings_of(text: str) -> Iterator[str]:
    """Docstrings of a test file, of its test classes and of its tests, each on one line."""
    for node in ast.walk(ast.parse(text)):
        is_test = isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.lower().startswith("test")
        if is_test or isinstance(node, ast.Module):
            yield " ".join((ast.get_docstring(node) or "").split())


def named_in(docstrings: Iterable[str]) -> dict[str, set[str]]:
    """What docstrings name, by document."""
    found: dict[str, set[str]] = {document: set() for document in REPORTED}
    for docstring in docstrings:
        for document, form in FORMS.items():
            for listed in re.findall(form, docstring):
                found[document].update(re.split(", | and ", listed))
        for listed in re.findall(LEFT_TO_TORCH, docstring):
            found["left to torch"].update(re.split(", ", listed))
    return found


@pytest.fixture(scope="module")
def named() -> dict[str, set[str]]:
    folders = [ROOT / "tests", *(ROOT / "packages").glob("*/tests")]
    files = [path.read_text() for folder in folders for path in folder.rglob("test_*.py") if path != Path(__file__)]
    documents = [document.split(" ")[0] for document in FORMS]
    texts = [text for text in files if any(document in text for document in documents)]
    return named_in(docstring for text in texts for docstring in docstrings_of(text))


@pytest.mark.parametrize("document", REPORTED)
def test_every_reported_defect_has_a_test_that_names_it(named: dict[str, set[str]], document: str) -> None:
    missing = [number for number in REPORTED[document] if number not in named[document]]
    assert not missing, f"{document}: no docstring of a test names {', '.join(missing)}"


@pytest.mark.parametrize("document", REPORTED)
def test_no_test_names_a_defect_that_was_not_reported(named: dict[str, set[str]], document: str) -> None:
    assert sorted(named[document] - set(REPORTED[document])) == []


def test_docstrings_of_tests_are_read_as_they_are_written() -> None:
    text = '''
"""A module. user-walk.md bug 5, plugin-friction.md bug 8."""
def helper():
    """defects.md C1."""
class TestOne:
    """red-team.md findings 4 and 14: why."""
    def test_two(self):
        """defects.md C4 and W2, red-team.md finding 9b; user-walk.md section 6,
        rows 7 and 8."""
def test_three():
    """Words. defects.md, left to torch: view.dtype, i0."""
'''
    assert named_in(docstrings_of(text)) == {
        "defects.md": {"C4", "W2"},
        "red-team.md finding": {"4", "14", "9b"},
        "user-walk.md bug": {"5"},
        "user-walk.md section 6, row": {"7", "8"},
        "plugin-friction.md bug": {"8"},
        "left to torch": {"view.dtype", "i0"},
    }
