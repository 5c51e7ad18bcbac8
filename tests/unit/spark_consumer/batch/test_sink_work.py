"""What sinks took of a plan: mirrors take releases later, several at once."""

from types import SimpleNamespace

from tidegate.spark_consumer.batch.sink_work import SinkWork
from tidegate.spark_consumer.core.plan import MergeMirror, StoreSegment, WriteRelease

BOTH = ("changelog", "mirror")


def plan(*steps, sinks=BOTH):
    return SimpleNamespace(sinks=sinks, steps=steps)


def write(number, *sinks):
    return WriteRelease(SimpleNamespace(number=number), sinks)


def test_each_sink_takes_what_a_release_is_written_to():
    work = SinkWork()
    steps = (write(0, *BOTH), write(1, *BOTH), StoreSegment(None))
    assert work.take(plan(*steps), {0: 5, 1: 7}) == {"changelog": (2, 12), "mirror": (2, 12)}
    assert work.take(plan(), {}) == {"changelog": (0, 0), "mirror": (0, 0)}


def test_a_merge_takes_the_releases_of_earlier_batches_once():
    work = SinkWork()
    assert work.take(plan(write(0, "changelog")), {0: 5})["mirror"] == (0, 0)
    steps = (write(1, "changelog"), write(2, "changelog"), MergeMirror(-1, 1))
    found = work.take(plan(*steps), {1: 7, 2: 9})
    assert found == {"changelog": (2, 16), "mirror": (2, 12)}
    assert work.take(plan(MergeMirror(1, 2)), {})["mirror"] == (1, 9)


def test_releases_of_an_earlier_process_are_counted_and_their_changes_are_not():
    work = SinkWork()
    found = work.take(plan(write(9, "changelog"), MergeMirror(6, 9)), {9: 4})
    assert found["mirror"] == (3, 4)


def test_a_mirror_that_joins_takes_all_before_it():
    sinks = (*BOTH, "history")
    steps = (MergeMirror(3, 3, ("history",)), write(4, *sinks))
    assert SinkWork().take(plan(*steps, sinks=sinks), {4: 2}) == {
        "changelog": (1, 2), "mirror": (1, 2), "history": (5, 2),
    }  # fmt: skip
