"""Saving does not stop training for longer than a step."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.reliability
def test_a_save_takes_less_time_than_a_step():
    script = Path(__file__).with_name("saving.py")
    environment = os.environ | {"STEPS": "60"}
    result = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=600)
    sys.stdout.write(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
