"""The parts of files in the order in which they are read again."""

from tidegate.producer.datastream_source.published_parts import PublishedParts


def read_again(parts):
    found = []
    while (name := parts.first()) is not None:
        found.append((name, parts.through(name)))
        parts.seen(name)
    return found


def test_parts_come_by_their_turns():
    parts = PublishedParts({"b": "3/1,8/4", "a": "2/2,5/5", "c": "1/3"})
    for name in "abc":
        parts.found(name)
    assert read_again(parts) == [("b", 3), ("a", 2), ("c", 1), ("b", 8), ("a", 5)]
    assert "a" not in parts
    assert parts.through("a") is None


def test_what_no_listing_shows_is_not_read():
    parts = PublishedParts({"a": "2/1", "b": "3/2"})
    assert parts.first() is None
    parts.found("b")
    parts.found("x")
    assert read_again(parts) == [("b", 3)]
    assert "a" in parts
    parts.found("a")
    assert read_again(parts) == [("a", 2)]


def test_a_file_is_dropped_with_all_its_parts():
    parts = PublishedParts({"a": "2/1,5/3", "b": "3/2"})
    for name in "ab":
        parts.found(name)
    assert parts.first() == "a"
    parts.drop("a")
    assert read_again(parts) == [("b", 3)]
    parts.drop("a")
