"""The short form of the kills of registry_crashes.py."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("registry_crashes.py")


def test_a_registry_survives_kills() -> None:
    command = [sys.executable, str(SCRIPT), "--kills", "12", "--seed", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    assert "12 kills, 0 violations" in ended.stdout
