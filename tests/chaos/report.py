"""What a run did and what was found, as JSON and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.chaos.breaker import Applied, Breaker
from tests.chaos.fleet import Ending, Fleet
from tests.chaos.growth import Sample
from tests.chaos.judge.topics import Published
from tests.chaos.lineage import Lineage
from tidegate.local_stack.judge.log import LoggedTransaction
from tidegate.local_stack.judge.verdict import Verdict

EXAMPLES_MAX = 5


@dataclass(slots=True)
class Report:
    """What a run did and what was found; `figures` must all be 0."""

    seed: int
    minutes: float
    figures: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    faults: list[Applied] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    """Those that were no kill and no orderly stop."""
    counts: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    """What all programs held, as the run went on."""
    logs: str = ""
    seconds: float = 0.0

    @property
    def wrong(self) -> int:
        """The sum of all figures."""
        return sum(self.figures.values())

    @property
    def verdict(self) -> str:
        """The last line."""
        if not self.wrong:
            return "all figures 0"
        return ", ".join(f"{name} {count}" for name, count in self.figures.items() if count)

    def add(self, name: str, found: Sequence[str]) -> None:
        """Count findings under a name, and keep the first of them."""
        self.figures[name] = self.figures.get(name, 0) + len(found)
        if found:
            self.examples.setdefault(name, []).extend(found[:EXAMPLES_MAX])

    def add_findings(self, found: Mapping[str, Sequence[str]]) -> None:
        """Count the findings of each figure."""
        for name, texts in found.items():
            self.add(name, texts)

    def add_output(self, verdict: Verdict) -> None:
        """Count the faults of changelog and mirror."""
        for name, count in verdict.faults().items():
            self.figures[f"output_{name}"] = count
        if examples := [*verdict.changelog.examples, *verdict.cuts.examples]:
            self.examples["output"] = examples

    def add_run(
        self,
        fleet: Fleet,
        breaker: Breaker,
        lineage: Lineage,
        *,
        published: Published,
        transactions: Sequence[LoggedTransaction],
    ) -> None:
        """Count what happened to the programs, and how much there was of everything."""
        self.add("unhealed", breaker.unhealed)
        self.add_endings(fleet.endings, tracebacks=fleet.tracebacks)
        self.faults = breaker.applied
        versions = Counter(one.heartbeat_version for one in published.progress)
        self.counts |= {
            "transactions": len(transactions),
            "changes_committed": sum(len(transaction.changes) for transaction in transactions),
            "progress_records": len(published.progress),
            **{f"heartbeats_of_version_{version}": versions[version] for version in (1, 2)},
            "stream_partitions": len(lineage.born),
            **{f"{verb}s": count for verb, count in lineage.done.items()},
            "faults": len(self.faults),
            "restarts": fleet.restarts,
            "explained_exits": len(self.endings) - self.figures["unexplained_exits"],
        }

    def add_endings(self, endings: Sequence[Ending], *, tracebacks: int) -> None:
        """Count the ends that nothing explains, and list all but kills and orderly stops."""
        unexplained = [end for end in endings if not end.explanation]
        self.add(
            "unexplained_exits",
            [f"{end.name} with code {end.code}: {end.words} ({end.log})" for end in unexplained],
        )
        self.figures["tracebacks"] = tracebacks
        self.endings = [end for end in endings if end.explanation not in {"killed", "stopped"}]

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "wrong": self.wrong, "verdict": self.verdict}

    def show(self, console: Console) -> None:
        """Print the tables, what is wrong, and the verdict."""
        faults = Table("at", "fault", "victim", "step", "seconds", title="faults")
        for one in sorted(self.faults, key=lambda fault: fault.at_s):
            faults.add_row(f"{one.at_s:.1f}", one.kind, one.victim, one.step, f"{one.seconds:.1f}")
        console.print(faults)
        table = Table("figure", "value", title="what happened")
        for name, count in self.counts.items():
            table.add_row(name.replace("_", " "), f"{count:,}")
        console.print(table)
        if self.endings:
            ends = Table("program", "at", "code", "explanation", "last words", title="endings")
            for end in self.endings:
                why = end.explanation or "NONE"
                ends.add_row(end.name, f"{end.at_s:.1f}", str(end.code), why, end.words)
            console.print(ends)
        figures = Table("figure", "violations", title="figures")
        for name, count in self.figures.items():
            figures.add_row(name.replace("_", " "), f"{count:,}", style="red" if count else "")
        console.print(figures)
        for name, lines in self.examples.items():
            for line in lines:
                console.print(f"{name}: {line}", soft_wrap=True, markup=False, highlight=False)
        if self.wrong:
            console.print(f"logs and output are in {self.logs}", soft_wrap=True)
        took = f"seed {self.seed}, {self.minutes:g} minutes of faults, {self.seconds:.0f} s in all"
        console.print(took, highlight=False)
        console.print(self.verdict, highlight=False)
