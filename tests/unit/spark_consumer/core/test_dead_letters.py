"""Errors about missing changes name the dead letters, if there are any."""

from tidegate.spark_consumer.core.dead_letters import with_dead_letters


def test_a_hint_names_the_table_only_where_it_has_records():
    assert with_dead_letters("Look there", 0) == "Look there"
    found = with_dead_letters("Look there", 3)
    assert found.startswith("Look there. ")
    assert "dead_letters has 3 records" in found
