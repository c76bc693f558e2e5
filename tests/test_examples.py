"""Examples run, and say what they should."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_kernel_that_normalises_rows_is_right_in_the_simulator() -> None:
    script = EXAMPLES / "rms_norm_kernel" / "rms_norm.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "simulator: right" in done.stdout


@pytest.mark.slow
def test_voice_activity_hears_the_two_voices_and_agrees_with_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    script = EXAMPLES / "voice_activity" / "detect.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    bars = "".join(line[8:] for line in done.stdout.splitlines() if line[:8].strip().endswith("s"))
    speaks = [bar in "▅▆▇█" for bar in bars]
    seconds = [number * 0.032 for number, here in enumerate(speaks) if here]
    assert sum(1.0 < moment < 2.9 for moment in seconds) > 30
    assert sum(3.8 < moment < 5.3 for moment in seconds) > 25
    assert not any(moment < 0.9 or 3.0 < moment < 3.7 for moment in seconds)
    assert "largest difference from ONNX Runtime" in done.stdout


@pytest.mark.slow
def test_a_trained_model_is_tuned_and_compiled_with_what_was_found(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    if importlib.util.find_spec("silero_vad") is None:
        pytest.skip("silero-vad is not installed")
    store, page = tmp_path / "choices.sqlite", tmp_path / "report.html"
    command = [sys.executable, str(EXAMPLES / "tune_model" / "tune.py"), "--store", str(store), "--report", str(page)]
    done = subprocess.run([*command, "--budget", "10s"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"0 of \d+ tasks from the store", done.stdout)
    assert "compiled with what the file has" in done.stdout and "largest difference from the model" in done.stdout
    assert "silero_vad.onnx" in page.read_text()
