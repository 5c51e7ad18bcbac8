"""Messages behind one that is not ready come later, in their order, each once."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.kafka.held_messages import HeldMessages


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 5))
def test_every_message_comes_once_and_in_order(waits, batch):
    """Each message is ready when it has been asked for so many times."""
    left, unread, taken, held = list(waits), list(range(len(waits))), [], HeldMessages()

    def consume():
        read, unread[:] = unread[:batch], unread[batch:]
        return read

    def is_ready(message):
        left[message] -= 1
        return left[message] < 0

    while unread or held:
        before = len(taken)
        taken += held.take(consume, is_ready)
        assert len(taken) <= before + batch
    assert taken == list(range(len(waits)))
