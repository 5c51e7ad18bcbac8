"""The scenarios, each small enough to be searched to its end."""

from __future__ import annotations

from tests.simulation.exhaustive.script import Part, Scenario, token_in


def _split(*, slots: tuple[int, int, int] = (0, 1, 0), apart: bool = False) -> tuple[Part, ...]:
    """One change before a split; after it a transaction over both children."""
    p, c, d = (token_in(name, slot) for name, slot in zip("pcd", slots, strict=True))
    return (
        Part(p, 0, ((10, "t1", 0),), end=20, children=(c, d)),
        Part(c, 20, ((30, "t2", 0),), (40,), parents=(p,), apart=apart),
        Part(d, 20, ((30, "t2", 4),), (40,), parents=(p,), apart=apart),
    )


def _merge(*, slot: int = 0, apart: bool = False) -> tuple[Part, ...]:
    """Two parents with different owners; a transaction over both before the merge."""
    p, q, c = token_in("p", 0), token_in("q", 1), token_in("c", slot)
    return (
        Part(p, 0, ((10, "t1", 0),), end=20, children=(c,)),
        Part(q, 0, ((10, "t1", 4),), end=20, children=(c,)),
        Part(c, 20, ((30, "t2", 0),), (40,), parents=(p, q), apart=apart),
    )


def _split_and_merge() -> tuple[Part, ...]:
    """A split whose children, at different owners, merge again."""
    p, c, d, m = token_in("p", 0), token_in("c", 0), token_in("d", 1), token_in("m", 1)
    return (
        Part(p, 0, ((10, "t1", 0),), end=20, children=(c, d)),
        Part(c, 20, ((30, "t2", 0),), parents=(p,), end=50, children=(m,)),
        Part(d, 20, ((30, "t2", 4),), parents=(p,), end=50, children=(m,)),
        Part(m, 50, ((60, "t3", 0),), (70,), parents=(c, d)),
    )


_ANY = ("A", "B")

# Together less than a minute of one core.
SCENARIOS = (
    Scenario("split, crash", _split(), crashes=_ANY),
    Scenario("split, commit unanswered", _split(), unknown=_ANY),
    Scenario("split, consumer crash", _split(), consumer_crashes=True),
    Scenario("split, markers apart", _split(), apart=True),
    Scenario("split and merge", _split_and_merge()),
)

# Half a minute to several each.
DEEP = (
    Scenario("split away, markers apart", _split(slots=(0, 1, 1)), apart=True),
    Scenario("merge, crash", _merge(), crashes=("A",)),
    Scenario("opening, crash", _split(), crashes=_ANY, opening=True),
    Scenario("split, expelled", _split(), expulsions=_ANY),
    Scenario("split, finer steps, crash", _split(apart=True), crashes=("A",), thirds=True),
    Scenario("split, reads within, crash", _split(), crashes=("A",), reads_within=True),
    Scenario("split, crash and return", _split(), crashes=("A",), returns=True),
    Scenario("split, markers apart, crash", _split(), apart=True, crashes=("A",)),
    Scenario("merge, commit unanswered", _merge(), unknown=_ANY),
    Scenario("merge, markers apart", _merge(), apart=True),
    Scenario("split and merge, crash", _split_and_merge(), crashes=("A",)),
)
