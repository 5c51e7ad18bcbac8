"""Ids that a batch's records name: looked up once, and none of another topic enters a plan."""

import pytest

from tests.topics import Topic
from tidegate.schemas.errors import SchemaError, SchemaNotFound, UnreachableError
from tidegate.schemas.wire_format import frame_prefix
from tidegate.spark_consumer.batch.schema_ids import SchemaIds
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.errors import UndecodableRecord, UnknownSchema

A = Topic("a", {2: {"id": "INT64"}, 3: {"id": "INT64", "t": "STRING"}}, ["id"], key_id=1)
B = Topic("b", {5: {"id": "INT64"}}, ["id"], key_id=4)
GOOD = [(A.topic, 1, 2), (A.topic, 1, 3), (B.topic, 4, 5), (A.topic, 1, None)]
BAD = {
    "unknown value": ((A.topic, 1, 99), UnknownSchema, "does not know"),
    "unknown key": ((A.topic, 99, 2), UnknownSchema, "does not know"),
    "value of another topic": ((A.topic, 1, 5), UnknownSchema, "not one of its topic"),
    "key as value": ((A.topic, 1, 1), UnknownSchema, "not one of its topic"),
    "no Avro record": ((A.topic, 1, 7), UnknownSchema, "not one of its topic"),
    "unframed value": ((A.topic, 1, b"{}"), UndecodableRecord, "does not begin with a schema id"),
    "no key": ((A.topic, b"", 2), UndecodableRecord, "a key does not begin with a schema id"),
}


class Registry:
    def __init__(self):
        self.asked = []
        self.schemas = {**A.schemas, **B.schemas, 1: A.key_schema, 4: B.key_schema, 7: {}}

    def schema(self, schema_id):
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            raise SchemaNotFound("the registry has no schema with this id", schema_id=schema_id)
        return self.schemas[schema_id]


def frames(*records):
    def head(part):
        return frame_prefix(part) if isinstance(part, int) else part

    return [(topic, head(key), head(value)) for topic, key, value in records]


def find(topic, column, head):
    return {"topic_partition": 3, "offset": 7}


def test_ids_are_named_by_topic_and_looked_up_once():
    registry = Registry()
    ids = SchemaIds(registry.schema, sets_aside=False)
    for _ in range(2):
        assert ids.topics_of(frames(*GOOD), find=find) == (
            TopicIds(A.topic, (1,), (2, 3)),
            TopicIds(B.topic, (4,), (5,)),
        )
    assert sorted(registry.asked) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("fault", BAD)
def test_any_other_is_an_error_that_names_the_record(fault):
    record, kind, text = BAD[fault]
    ids = SchemaIds(Registry().schema, sets_aside=False)
    with pytest.raises(UndecodableRecord, match=text) as caught:
        ids.topics_of(frames(*GOOD, record), find=find)
    assert type(caught.value) is kind
    assert caught.value.exit_code == 2
    fields = caught.value.fields
    assert (fields["topic"], fields["topic_partition"], fields["offset"]) == (A.topic, 3, 7)
    assert 'on_bad_record = "dead_letter"' in caught.value.hint


@pytest.mark.parametrize("fault", BAD)
def test_where_it_is_set_aside_none_of_its_ids_enters_the_plan(fault):
    record, _, _ = BAD[fault]
    ids = SchemaIds(Registry().schema, sets_aside=True)
    assert ids.topics_of(frames(record), find=find) == ()
    found = ids.topics_of(frames(*GOOD, record), find=find)
    assert found == SchemaIds(Registry().schema, sets_aside=True).topics_of(
        frames(*GOOD), find=find
    )


@pytest.mark.parametrize(
    "failure", [UnreachableError("the registry does not answer"), SchemaError("too many requests")]
)
def test_a_registry_that_gives_no_answer_makes_no_record_a_dead_letter(failure):
    def fail(_schema_id):
        raise failure

    ids = SchemaIds(fail, sets_aside=True)
    with pytest.raises(type(failure), match=str(failure)):
        ids.topics_of(frames(*GOOD), find=find)
