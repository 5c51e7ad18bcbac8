"""docs/protocol.md, sections 2 to 4: each example and table is computed by the code."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from google.cloud.spanner_v1.types import TypeCode

from tests.tidy.protocol_page import (
    PAGE,
    REPOSITORY,
    code,
    described_fields,
    example,
    section,
    table,
)
from tidegate.lineage.subscription import Subscription
from tidegate.producer.config import ProducerConfig
from tidegate.producer.core.publication import PARKED_KEYS_MAX
from tidegate.producer.messages import (
    FORM_EVENT,
    FORM_MESSAGE,
    FORM_RECORD,
    FORM_REDRIVEN,
    KEY_PARKED,
)
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.producer.translation.event_writer import EventForm
from tidegate.producer.translation.keys import key_field_writer
from tidegate.producer.translation.table_evolution import grown
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.producer.translation.values import converter
from tidegate.schemas.avro_types import avro_type
from tidegate.schemas.change_schema import FLAT_FIELDS, key_schema, row_fields, value_schema
from tidegate.schemas.checksums import CHECKSUM_MODULUS, CHECKSUMS, origin_of, parked_key
from tidegate.schemas.datastream_event import DATASTREAM_HEAD, datastream_fields
from tidegate.schemas.debezium_schema import DEBEZIUM_SOURCE, DEBEZIUM_TAIL
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.order_key import OrderKey, first_key_after, sequence_pair
from tidegate.schemas.output_form import Envelope, ValueFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import (
    HEADER_MOD,
    HEADER_ORDER,
    HEADER_ORIGIN,
    HEADERS_PARKED,
    ROOT_TOKEN,
    SLOTS_DEFAULT,
    TEMPLATE_DEFAULT,
    TopicNames,
    TopicTemplate,
    slot_of,
)
from tidegate.schemas.wire_format import unframe

# ---------------------------------------------------------------- names


def test_names_and_topics_that_a_reader_subscribes():
    for given in example("names"):
        names = TopicNames(given["prefix"], given["template"])
        topic = names.data(given["table"])

        assert given["data_topic"] == topic
        assert given["subjects"] == [names.key_subject(topic), names.value_subject(topic)]
        columns = (Column("Id", ColumnType("INT64"), 1, key_position=1),)
        schema = key_schema(topic, TableSchema(given["table"], columns))
        assert given["namespace"] == schema["namespace"]
        assert given["progress_topic"] == names.progress
        assert given["group"] == names.group
        assert tuple(given["recorded"]) == names.recorded
        assert names.table(topic) == given["table"]
        assert f"`{names.dead_letter.replace(given['prefix'], '<prefix>')}`" in section("2")
        pattern = Subscription(names).data_pattern
        assert all(re.fullmatch(pattern, one) for one in given["matches"])
        assert not any(re.fullmatch(pattern, one) for one in given["matches_not"])
        for name in ("progress", "letter", "dead-letter", given["table"]):
            assert is_refused(names.data, name) == (name in given["refused_tables"])


def is_refused(call: Any, *given: str) -> bool:
    try:
        call(*given)
    except ConfigError:
        return True
    return False


def test_equal_keys():
    for given in example("equal keys"):
        write = key_field_writer(ColumnType(given["type"]))
        assert {write(value).hex() for value in given["values"]} == {given["avro"]}


def test_prefixes_that_go_together():
    for given in example("prefixes"):
        names = TopicNames(given["prefix"], given["template"])
        for other in given["allowed"] + given["refused"]:
            overlapping = names.overlapping([f"{other}-progress"])
            assert bool(overlapping) == (other in given["refused"]), other


def test_constants():
    found = {name: code(value)[0] for name, value in table("fact", "pattern or number")}
    prefix, table_name, default, template, length, slots = found.values()

    assert Subscription(TopicNames("p")).data_pattern == re.escape("p.") + table_name
    assert slots == str(SLOTS_DEFAULT)
    assert ProducerConfig.model_fields["slots"].default == SLOTS_DEFAULT
    assert default == TEMPLATE_DEFAULT == ProducerConfig.model_fields["topic_template"].default
    for name in ("a", "_", ".a", "-a", "a.b-c_D", "", "ä", "a b", "a" * 100, "a" * 101, "a\n"):
        assert is_refused(TopicNames, name) == (not re.fullmatch(prefix, name))
    templates = [default, "{prefix}{table}", "{prefix}-a.{table}_B9", "{prefix}./{table}", "x"]
    for text in (*templates, "{prefix}.{table}.{table}", "{table}.{prefix}", "{prefix}.{table}\n"):
        assert is_refused(TopicTemplate.parse, text) == (not re.fullmatch(template, text))
    assert not is_refused(TopicNames("p").data, "t" * (int(length) - 2))
    assert is_refused(TopicNames("p").data, "t" * (int(length) - 1))


def test_slots_and_origins():
    given = example("slots")
    assert given["slot_of"] == {token: slot_of(token, given["slots"]) for token in given["slot_of"]}
    assert [slot_of(ROOT_TOKEN, slots) for slots in range(1, 50)] == [0] * 49
    for given in example("origins"):
        origin = origin_of(given["token"])
        assert given["origin"] == origin.hex()
        assert given["as_signed_number"] == int.from_bytes(origin, "big", signed=True)


def test_headers_of_a_change_and_of_a_parked_one():
    headers = [code(header)[0] for _, header, _ in table("place", "header", "value")]
    assert headers == [HEADER_ORDER, HEADER_MOD, HEADER_ORIGIN]
    rows = table("header of a parked change", "value")
    assert tuple(code(name)[0] for name, _ in rows) == HEADERS_PARKED
    forms = {code(form)[0].encode() for form, _ in table("form", "value")}
    assert forms == {FORM_RECORD, FORM_MESSAGE, FORM_REDRIVEN, FORM_EVENT}
    assert f"`{KEY_PARKED}`" in section("3.5")


def test_names_of_parked_keys():
    for given in example("parked keys"):
        key = bytes.fromhex(given["key"])
        assert parked_key(given["topic"], key) == given["parked_key"]
    assert f"are {PARKED_KEYS_MAX:,}:" in section("3.5")


# ---------------------------------------------------------------- data records


def test_every_type_of_spanner_is_on_the_page_or_refused():
    listed: dict[str, Any] = {}
    for spanner, avro in table("Spanner", "Avro"):
        names = code(spanner)
        if "PG_NUMERIC" in names:
            assert avro_type(ColumnType("NUMERIC", annotation="PG_NUMERIC")) == json.loads(
                code(avro)[0]
            )
        elif "STRING" in names and "TIMESTAMP" in names:
            assert avro_type(ColumnType("TIMESTAMP"), TimestampForm.STRING) == json.loads(
                code(avro)[0]
            )
        elif names == ["ARRAY"]:
            array = json.loads(code(avro)[0].replace(" T]", ' "T"]'))
            element = ColumnType("BOOL")
            assert avro_type(ColumnType("ARRAY", element)) == {
                **array,
                "items": ["null", "boolean"],
            }
        else:
            listed |= dict.fromkeys(names, json.loads(code(avro)[0]))

    for spanner_type in TypeCode:
        if spanner_type.name in listed:
            assert avro_type(ColumnType(spanner_type.name)) == listed[spanner_type.name]
        else:
            with pytest.raises(SchemaError):
                avro_type(ColumnType(spanner_type.name))
    assert set(listed) <= {spanner_type.name for spanner_type in TypeCode}


def test_every_type_of_postgresql_has_the_code_on_the_page():
    rows = table("PostgreSQL", "type code")
    assert len(rows) > 10
    for postgresql, described in rows:
        kind, *annotation = code(described)
        expected = ColumnType(kind, annotation="".join(annotation))
        for name in code(postgresql):
            assert ColumnType.from_postgresql_type(name) == expected
        as_text = expected.annotation == "PG_NUMERIC"
        assert avro_type(expected) == ("string" if as_text else avro_type(ColumnType(kind)))


def test_timestamps_as_text():
    convert = converter(ColumnType("TIMESTAMP"), TimestampForm.STRING)
    for given in example("timestamps as text"):
        assert convert(given["spanner"]) == given["text"]


def the_table() -> TableSchema:
    given = example("schemas")
    columns = [
        Column(name, ColumnType.from_spanner_type(spanner_type), ordinal)
        for ordinal, (name, spanner_type) in enumerate(given["columns"].items(), start=1)
    ]
    positions = {name: place for place, name in enumerate(given["primary_key"], start=1)}
    return TableSchema(
        given["table"],
        tuple(replace(column, key_position=positions.get(column.name)) for column in columns),
    )


ENVELOPES = {
    Envelope.TIDEGATE: ("schemas", 2),
    Envelope.FLAT: ("flat", 3),
    Envelope.DEBEZIUM: ("debezium", 4),
    Envelope.DATASTREAM: ("datastream", 5),
}
"""Example that has the value schema, and that schema's id."""
FORM = EventForm(
    prefix="eu-orders", project="p", instance="i", database="d", change_stream="Everything"
)


def test_schemas():
    given = example("schemas")
    made = {"key_schema": key_schema(given["topic"], the_table())}
    # As text: the order of the attributes counts.
    assert json.dumps(given["key_schema"]) == json.dumps(made["key_schema"])
    for envelope, (name, _) in ENVELOPES.items():
        expected = example(name)["value_schema"]
        assert json.dumps(expected) == json.dumps(schema_of(envelope)), name


def schema_of(envelope: Envelope) -> Any:
    return value_schema(example("schemas")["topic"], the_table(), TimestampForm.MICROS, envelope)


def test_value_schemas_grow():
    given = example("growth")

    def value(names: list[str]) -> dict[str, Any]:
        columns = (Column(name, ColumnType("INT64"), place) for place, name in enumerate(names))
        return value_schema("t", TableSchema("t", tuple(columns)))

    registered = [value(names) for names in given["registered"]]
    assert list(row_fields(grown(value(given["table"]), registered, table="t"))) == given["next"]


def test_the_example_table_is_the_one_that_the_statement_creates():
    (statement,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    given = example("schemas")
    columns = dict(re.findall(r"^  (\w+) +(\S+?)(?: NOT NULL)?,$", statement, re.MULTILINE))

    assert given["columns"] == columns
    assert f"CREATE TABLE {given['table']} (" in statement
    assert f"PRIMARY KEY ({', '.join(given['primary_key'])})" in statement


def read_avro(schema: dict[str, Any], framed: bytes) -> Any:
    """Read by fastavro, with decimals and times left as they are written."""
    _, body = unframe(framed)
    bare = json.loads(json.dumps(schema), object_hook=without_logical_type)
    return fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(bare), None)


def without_logical_type(node: dict[str, Any]) -> Any:
    return {name: item for name, item in node.items() if name != "logicalType"}


def hexadecimal(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {name: hexadecimal(item) for name, item in value.items()}
        case _:
            return value


def message(envelope: Envelope, form: ValueFormat = ValueFormat.AVRO, **changed: Any) -> Any:
    """Return the message of the documented change, but for what a case changes in it."""
    schemas, given = example("schemas"), example("change")
    subject, record = the_table(), given["record"]
    types = {column.name: column for column in subject.columns}
    has_events = envelope in (Envelope.DEBEZIUM, Envelope.DATASTREAM)
    encoding = TableEncoding(
        subject,
        schemas["topic"],
        RegisteredSchema(1, schemas["key_schema"]),
        RegisteredSchema(ENVELOPES[envelope][1], schema_of(envelope)),
        **({"event_form": replace(FORM, value_format=form)} if has_events else {}),
    )
    translator = Translator({subject.name: encoding}, change_stream=given["change_stream"])
    (mod,) = record["mods"]
    documents = {name: changed.pop(name, mod[name]) for name in ("new_values", "old_values")}
    fields = {
        **{name: item for name, item in record.items() if name != "commit_timestamp_us"},
        "commit_timestamp_ns": record["commit_timestamp_us"] * NS_PER_US,
        "columns": tuple(
            RecordColumn(
                name, types[name].type, bool(types[name].key_position), types[name].ordinal
            )
            for name in record["columns"]
        ),
        "mods": (Mod(mod["keys"], **documents),),
        **changed,
    }
    translated = translator.translate(DataChangeRecord(**fields), token=given["partition_token"])
    (made,) = translated.messages
    assert made.key.hex() == given["key"]
    assert made.order_key.hex() == given["headers"][HEADER_ORDER]
    return made


def test_change():
    given, made = example("change"), message(Envelope.TIDEGATE)
    assert given["headers"] == {
        HEADER_ORDER: made.order_key.hex(),
        HEADER_MOD: made.mod.decode(),
        HEADER_ORIGIN: made.origin.hex(),
    }
    assert given["value"] == made.value.hex()
    assert given["value_fields"] == hexadecimal(
        read_avro(example("schemas")["value_schema"], made.value)
    )


def test_changes_of_flat_values():
    flat = example("flat")
    for change in flat["changes"]:
        given = {name: item for name, item in change.items() if not name.startswith("value")}
        made = message(Envelope.FLAT, **given)
        assert made.value.hex() == change["value"]
        assert hexadecimal(read_avro(flat["value_schema"], made.value)) == change["value_fields"]


@pytest.mark.parametrize("envelope", [Envelope.DEBEZIUM, Envelope.DATASTREAM])
def test_changes_of_other_products_events(envelope: Envelope):
    shown = []
    for changed in (
        {"mod_type": "UPDATE"},
        {"mod_type": "DELETE", "new_values": {}, "old_values": {}},
    ):
        made = message(envelope, **changed)
        text = message(envelope, ValueFormat.JSON, **changed)
        shown.append({
            "mod_type": changed["mod_type"],
            "value_fields": hexadecimal(read_avro(schema_of(envelope), made.value)),
            "value": made.value.hex(),
            "json": json.loads(text.value),
        })  # fmt: skip
    assert json.dumps(example(str(envelope))["changes"]) == json.dumps(shown)


def test_every_field_of_a_change_is_described():
    change = value_schema("t", the_table())
    source = next(field for field in change["fields"] if field["name"] == "source")
    plain = [field["name"] for field in change["fields"] if field is not source]
    described = described_fields(section("3.3"), "field")

    assert [name for name in described if name in plain] == plain
    named = {name.removeprefix("source.") for name in described if name not in plain}
    assert named - {"source"} < {field["name"] for field in source["type"]["fields"]}


def test_every_field_of_other_envelopes_is_described():
    flat = {
        name: types.split(",")[0].replace("array of strings", "array")
        for names, types, _ in table("field of a flat value", "type", "meaning")
        for name in code(names)
    }
    kinds = {field["name"]: field["type"] for field in FLAT_FIELDS}
    assert flat == {
        name: kind if isinstance(kind, str) else kind["type"] for name, kind in kinds.items()
    }

    def described(*heading: str) -> list[str]:
        return [name for names, *_ in table(*heading) for name in code(names)]

    def names_of(fields: Any) -> set[str]:
        return {field["name"] for field in fields}

    debezium = described("field of Debezium's envelope", "type", "meaning")
    assert set(debezium) == {"before", "after"} | names_of(DEBEZIUM_TAIL)
    assert names_of(DEBEZIUM_SOURCE["fields"]) <= set(code(section("3.9")))
    event = described("field of an event", "Avro", "JSON", "value")
    assert event == [field["name"] for field in datastream_fields([], "")]
    metadata = described("field of `source_metadata`", "Avro", "meaning")
    assert set(metadata) == names_of(DATASTREAM_HEAD[-1]["type"]["fields"])


def test_order_keys_and_checksums():
    given = example("order")
    keys = [
        OrderKey(
            change["commit_timestamp_us"],
            change["server_transaction_id"],
            sequence_pair(change["record_sequence"]),
            change["mod_number"],
        ).encode()
        for change in given["changes"]
    ]

    assert [change["order_key"] for change in given["changes"]] == [key.hex() for key in keys]
    assert keys == sorted(keys)
    for kind, checksum_of in CHECKSUMS.items():
        shares = [checksum_of(key) for key in keys]
        assert [change["checksums"][kind.value] for change in given["changes"]] == [
            share.to_bytes(8, "big").hex() for share in shares
        ]
        # The example has to show that sums begin again at 2^64.
        assert sum(shares) > CHECKSUM_MODULUS
        total = sum(shares) % CHECKSUM_MODULUS
        assert given["checksums_of_all"][kind.value] == total.to_bytes(8, "big").hex()
    bound = given["bound"]
    assert bound["first_key_after"] == first_key_after(bound["commit_timestamp_us"]).hex()
    assert bound["changes_before_it"] == sum(
        key < first_key_after(bound["commit_timestamp_us"]) for key in keys
    )


# ---------------------------------------------------------------- the page itself


def test_references_to_sections_lead_somewhere():
    headings = set(re.findall(r"^##+ ([0-9.]+?)\.? ", PAGE, re.MULTILINE))
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    in_page = set(re.findall(r"\((?:section )?(\d+(?:\.\d+)?)\)", text))
    in_page |= set(re.findall(r"[Ss]ections? (\d+(?:\.\d+)?)", text))
    in_code = {
        number
        for folder in ("producer", "schemas", "spark_consumer", "tests/simulation")
        for path in (REPOSITORY / folder).rglob("*.py")
        for number in re.findall(
            r"docs/protocol\.md`, (?:section )?([\d.]+\d|\d)", path.read_text()
        )
    }
    assert in_page
    assert in_code
    assert in_page | in_code <= headings


def test_every_example_is_computed():
    names = re.findall(r"<!-- example: ([a-z ]+) -->", PAGE)
    tests = "".join(
        path.read_text() for path in (REPOSITORY / "tests/tidy").glob("test_protocol_*.py")
    )
    assert [name for name in names if f'"{name}"' not in tests] == []
    assert PAGE.count("```json") == len(set(names)) == len(names) > 20
