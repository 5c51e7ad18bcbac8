"""An object's key is in its own order, whatever the order of the columns."""

from tidegate.producer.source_objects import SourceField, SourceObject


def test_the_key_is_in_the_order_of_its_positions():
    fields = (
        SourceField("a", "LONG", nullable=False, key_position=2),
        SourceField("b", "LONG", nullable=True),
        SourceField("c", "LONG", nullable=False, key_position=1),
    )
    assert SourceObject("t", fields).key == ("c", "a")
    assert SourceObject("t", fields[1:2]).key == ()
