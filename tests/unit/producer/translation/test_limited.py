"""A change that its topic cannot take is named before anything of it is produced."""

import pytest

from tests.unit.producer.translation.test_fresh_answers import Clock
from tests.unit.producer.translation.test_refreshing import RECORD
from tidegate.producer.errors import MessageTooLarge
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.records import Mod
from tidegate.producer.translation.fresh_answers import ANSWER_HOLDS_US
from tidegate.producer.translation.limited import LimitedTranslator
from tidegate.schemas.errors import UnreachableError

MODS = (Mod({"id": "1"}, {}, {}), Mod({"id": "2", "region": "eu"}, {}, {}))


class Limits:
    """Knows `now`; says `known` until it is asked again."""

    def __init__(self, known, now=None):
        self.known, self.now = known, known if now is None else now
        self.refreshed = 0

    def bytes_max(self, topic):
        assert topic == "p.t"
        return self.known

    def refresh(self):
        self.refreshed += 1
        if isinstance(self.now, Exception):
            raise self.now
        self.known = self.now


class Fixed:
    """Translates each mod into a message of a size."""

    def __init__(self, *sizes):
        self.messages = tuple(
            ChangeMessage("p.t", b"k", b"v" * size, b"order", b"I", bytes(8)) for size in sizes
        )

    def translate(self, record, *, token):
        assert token == "token"
        return PublishableRecord(7, "tx", "0", self.messages)

    def translate_now(self, record, *, token):
        return self.translate(record, token=token) if self.messages else None


def translated(limits, *sizes):
    translator = LimitedTranslator(Fixed(*sizes), limits)
    return translator.translate(RECORD._replace(mods=MODS), token="token")


def test_a_message_at_the_limit_passes_and_one_byte_more_does_not():
    (message,) = Fixed(5_000).messages
    limits = Limits(message.size_bytes)
    assert translated(limits, 5_000).messages == (message,)
    assert not limits.refreshed

    with pytest.raises(MessageTooLarge):
        translated(limits, 5_001)


@pytest.mark.parametrize("value_bytes", [0, 10, 100, 200, 300, 5_000])
def test_the_short_cut_and_the_exact_count_agree(value_bytes):
    (message,) = Fixed(value_bytes).messages
    translated(Limits(message.size_bytes), value_bytes)

    with pytest.raises(MessageTooLarge):
        translated(Limits(message.size_bytes - 1), value_bytes)


def test_what_may_be_too_large_is_left_to_the_translation_that_may_block():
    limits = Limits(Fixed(5_000).messages[0].size_bytes)

    def now(*sizes):
        translator = LimitedTranslator(Fixed(*sizes), limits)
        return translator.translate_now(RECORD._replace(mods=MODS), token="token")

    assert now(5_000) == translated(limits, 5_000)
    assert now(5_000, 5_001) is None
    assert now() is None  # the translator inside would block
    assert not limits.refreshed


def test_the_error_names_the_record():
    with pytest.raises(MessageTooLarge) as caught:
        translated(Limits(500), 100, 1_000)

    message = Fixed(1_000).messages[0]
    assert caught.value.fields == {
        "topic": "p.t",
        "table": "t",
        "key": "id=2, region=eu",
        "commit_timestamp_us": 7,
        "size_bytes": message.size_bytes,
        "limit_bytes": 500,
    }
    assert "max.message.bytes" in caught.value.hint
    assert not caught.value.retriable


def test_a_limit_that_was_raised_is_found():
    limits = Limits(500, now=5_000)

    assert len(translated(limits, 100, 1_000).messages) == 2
    assert limits.refreshed == 1
    translated(limits, 1_000, 1_000)
    assert limits.refreshed == 1


def test_limits_that_cannot_be_read_are_a_reason_to_try_again():
    with pytest.raises(UnreachableError) as caught:
        translated(Limits(500, now=UnreachableError("no broker")), 1_000)

    assert caught.value.retriable


def test_many_changes_that_are_too_large_read_the_limits_once_in_some_seconds():
    limits, clock = Limits(500), Clock()
    translator = LimitedTranslator(Fixed(100, 1_000), limits, clock_us=clock)

    def refusals(count):
        for _ in range(count):
            with pytest.raises(MessageTooLarge):
                translator.translate(RECORD._replace(mods=MODS), token="token")
        return limits.refreshed

    assert refusals(50) == 1
    clock.now_us += ANSWER_HOLDS_US - 1
    assert refusals(50) == 1
    clock.now_us += 1
    assert refusals(50) == 2


def test_a_limit_that_is_raised_is_seen_after_some_seconds():
    limits, clock = Limits(500), Clock()
    translator = LimitedTranslator(Fixed(100, 1_000), limits, clock_us=clock)
    record = RECORD._replace(mods=MODS)
    with pytest.raises(MessageTooLarge):
        translator.translate(record, token="token")

    limits.now = 5_000
    clock.now_us += ANSWER_HOLDS_US
    assert len(translator.translate(record, token="token").messages) == 2


def test_limits_that_could_not_be_read_are_read_with_the_next_change():
    limits = Limits(500, now=UnreachableError("no broker"))
    translator = LimitedTranslator(Fixed(1_000), limits, clock_us=Clock())
    for _ in range(2):
        with pytest.raises(UnreachableError):
            translator.translate(RECORD, token="token")

    assert limits.refreshed == 2


def test_threads_that_meet_changes_that_are_too_large_read_the_limits_once():
    limits = Limits(500)

    class Overtaken:
        """The first thread that wants the lock gets it after another one."""

        translator = None

        def __enter__(self):
            translator, self.translator = self.translator, None
            if translator is not None:
                with pytest.raises(MessageTooLarge):
                    translator.translate(RECORD, token="token")

        def __exit__(self, *_):
            pass

    lock = Overtaken()
    lock.translator = LimitedTranslator(Fixed(1_000), limits, lock=lock, clock_us=Clock())
    with pytest.raises(MessageTooLarge):
        lock.translator.translate(RECORD, token="token")

    assert lock.translator is None
    assert limits.refreshed == 1
