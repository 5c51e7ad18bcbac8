"""The alias of the simulator's program."""

from __future__ import annotations

import subprocess
import sys

CALL = "from tidegate.local_stack.parts.simulator_program import main; main()"
WITHOUT = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "spanner_simulator":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_the_simulators_own_program():
    done = run(CALL)

    assert 0 == done.returncode, done.stderr
    assert "SPANNER_EMULATOR_HOST" in done.stdout


def test_without_the_simulator_it_says_what_to_install():
    done = run(WITHOUT + CALL)

    assert 2 == done.returncode
    assert [
        'The simulator is not installed. Install it with: pip install "tidegate[local]"'
    ] == done.stderr.splitlines()
