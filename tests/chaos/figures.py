"""The figures of a run: violations by checker, and what else must be 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from tests.chaos.collect import Found
from tests.chaos.fleet import Ending
from tests.chaos.report import EXAMPLES_MAX, Report
from tests.simulation.history import History, Violation
from tidegate.local_stack.judge.changelog import compare_changelog
from tidegate.local_stack.judge.log import LoggedTransaction
from tidegate.schemas.progress import ProgressBody, SlotChanges, SlotProgress

Checker = Callable[[History], Iterator[Violation]]

_OF_THE_JUDGE = ("unlike_source", "ordinals_broken", "out_of_order")


def figures_of(
    report: Report,
    found: Found,
    *,
    checkers: Mapping[str, Checker],
    transactions: Sequence[LoggedTransaction],
    endings: Sequence[Ending],
    tracebacks: int,
) -> None:
    """Run every checker, and add what the checkers cannot see."""
    history = found.history
    for name, check in checkers.items():
        violations = iter(check(history))
        first = [_described(one) for one in islice(violations, EXAMPLES_MAX)]
        report.add(name, first)
        report.figures[name] += sum(1 for _ in violations)
    judged = compare_changelog(transactions, changelogs=found.changelogs, manifests=found.manifests)
    for name in _OF_THE_JUDGE:
        report.figures[f"changelog_{name}"] = getattr(judged, name)
        if getattr(judged, name):
            report.examples[f"changelog_{name}"] = list(judged.examples)
    report.add_endings(endings, tracebacks=tracebacks)


def heartbeat_versions(bodies: Iterable[ProgressBody]) -> dict[str, int]:
    """Count heartbeats by the version of the progress records, as far as they tell it.

    Only version 2 has `SlotChanges` and numbers its tokens; a `SlotProgress` without tokens may be
    of either and is left out.
    """
    versions: Counter[int] = Counter()
    for body in bodies:
        if isinstance(body, SlotChanges):
            versions[2] += 1
        elif isinstance(body, SlotProgress) and body.tokens:
            versions[1 if body.tokens[0].number < 0 else 2] += 1
    return {f"heartbeats_of_version_{version}": versions[version] for version in (1, 2)}


def _described(violation: Violation) -> str:
    subject = violation.subject
    if subject is None:
        return violation.text
    return f"{violation.text} [{subject.hex() if isinstance(subject, bytes) else subject}]"
