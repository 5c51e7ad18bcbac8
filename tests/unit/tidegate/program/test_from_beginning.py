"""A reader beside any group joins nothing, commits nothing, and begins at the beginning."""

from tidegate.program import from_beginning
from tidegate.program.from_beginning import consume_from_beginning


class Consumer:
    """Only keeps what it was made with."""

    def __init__(self, config):
        self.config = config

    def assign(self, places):
        self.assigned = [(place.topic, place.partition, place.offset) for place in places]


def test_it_reads_committed_records_from_the_beginning_and_joins_nothing(monkeypatch):
    monkeypatch.setattr(from_beginning, "Consumer", Consumer)
    consumer = consume_from_beginning(
        "p", [2, 3], bootstrap_servers="x", client_group="g",
        options={"group.id": "others", "client.rack": "r"}, sizes={"fetch.max.bytes": 7},
    )  # fmt: skip

    assert consumer.assigned == [("p", 2, 0), ("p", 3, 0)]
    assert consumer.config["isolation.level"] == "read_committed"
    assert consumer.config["enable.auto.commit"] is False
    assert consumer.config["enable.partition.eof"] is True
    assert consumer.config["group.id"] == "g"
    assert consumer.config["client.rack"] == "r"
    assert consumer.config["fetch.max.bytes"] == 7
