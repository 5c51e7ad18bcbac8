"""Runs the named tests of a mutant, in a process of its own: `python -m tests.mutants NAME…`.

Patches are applied before pytest imports a test, so that also a function that a test imports by
its name is the broken one.  Without NAME the tests of all mutants run on whole code, and with
`whole NAME…` those of some; `list` prints each mutant with its tests.  The last line of standard
output is JSON: `passed`, `failed` or `broke` for each named test.  `broke` is a test that failed
because the mutant cannot run, which proves nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.mutants.mutants import MUTANTS
from tests.mutants.verdicts import Verdict
from tests.simulation.mutant import patched

_CANNOT_RUN = (AttributeError, ImportError, NameError, RecursionError, SyntaxError, TypeError)


class _Verdicts:
    """The verdict on each test; one of several parameters counts if it has failed."""

    def __init__(self) -> None:
        self.found: dict[str, Verdict] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        named = item.nodeid.split("[")[0]
        if report.skipped:
            return report
        if call.excinfo is None:
            self.found.setdefault(named, "passed")
        elif call.when != "call" or issubclass(call.excinfo.type, _CANNOT_RUN):
            if self.found.get(named) != "failed":
                self.found[named] = "broke"
        else:
            self.found[named] = "failed"
        return report


def main(arguments: list[str]) -> int:
    # The same examples each time, none kept: those of broken code are of no use to others.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("m", deadline=None, database=None, derandomize=True, phases=phases)
    settings.load_profile("m")
    if arguments == ["list"]:
        for one in MUTANTS:
            print(one.name, *one.tests, sep="\n    ")
        return 0
    is_whole = arguments[:1] in ([], ["whole"])
    names = arguments[1:] if is_whole else arguments
    chosen = [one for one in MUTANTS if not names or one.name in names]
    if not chosen:
        print(f"no such mutant: {arguments}", file=sys.stderr)
        return 2
    tests = sorted({test for one in chosen for test in one.tests})
    verdicts = _Verdicts()
    with patched(() if is_whole else chosen[0].patches):
        pytest.main(["-q", "--tb=short", "-p", "no:cacheprovider", *tests], [verdicts])
    print(json.dumps(verdicts.found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
