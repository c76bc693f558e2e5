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
def test_a_trained_model_is_tuned_and_the_second_call_measures_nothing(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    if importlib.util.find_spec("silero_vad") is None:
        pytest.skip("silero-vad is not installed")
    page = tmp_path / "report.html"
    command = [sys.executable, str(EXAMPLES / "tune_model" / "tune.py"), "--budget", "8s", "--report", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    again = re.search(r"again: (\d+) of (\d+) tasks from the store", done.stdout)
    assert again is not None and int(again[2]) > 4
    assert "largest difference between the model before and after: 0.0e+00" in done.stdout
    assert "silero_vad.onnx" in page.read_text()
