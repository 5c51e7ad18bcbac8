"""The types of a decoded change as Spark has them, from Avro's: equal to those of `decoding`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas

_PLAIN: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "bytes": BinaryType(),
    "double": DoubleType(),
    "enum": StringType(),
    "float": FloatType(),
    "int": IntegerType(),
    "long": LongType(),
    "string": StringType(),
}
_LOGICAL: Mapping[str, DataType] = {"date": DateType(), "timestamp-micros": TimestampType()}


def change_type(schemas: TopicSchemas) -> StructType:
    """Return the columns `decoding.CHANGE_COLUMNS` of a topic's changes, every field nullable.

    Raises SchemaError for a type that no change has.
    """
    named: dict[str, DataType] = {}
    fields = {
        field["name"]: _type(field["type"], named) for field in schemas.reader_schema["fields"]
    }
    source = fields["source"]
    if not isinstance(source, StructType):
        raise SchemaError("a value schema has no record in source", table=schemas.table)
    columns: dict[str, DataType] = {
        "release": LongType(),
        "ordinal": LongType(),
        "commit_timestamp": source["commit_timestamp"].dataType,
        "server_transaction_id": source["server_transaction_id"].dataType,
        "record_sequence": source["record_sequence"].dataType,
        "mod_number": source["mod_number"].dataType,
        "mod_type": fields["mod_type"],
        "order_key": BinaryType(),
        "key": _type(schemas.key_schema, {}),
        "new_values": fields["new_values"],
        "old_values": fields["old_values"],
        "new_columns": fields["new_columns"],
        "old_columns": fields["old_columns"],
        "source": source,
        "topic_partition": IntegerType(),
        "offset": LongType(),
        "origin": LongType(),
        "value_bytes": LongType(),
    }
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def _type(avro: Any, named: dict[str, DataType]) -> DataType:
    """Return the type of an Avro schema; `named` collects the records, for references."""
    if isinstance(avro, list):
        (branch,) = (one for one in avro if one != "null")
        return _type(branch, named)
    if isinstance(avro, str):
        if (kind := named.get(avro.rpartition(".")[2]) or _PLAIN.get(avro)) is not None:
            return kind
        raise SchemaError("an Avro type that no change has", type=avro)
    if avro["type"] == "record":
        kind = StructType(
            [StructField(field["name"], _type(field["type"], named)) for field in avro["fields"]]
        )
        named[avro["name"]] = kind
        return kind
    if avro["type"] == "array":
        return ArrayType(_type(avro["items"], named))
    if avro.get("logicalType") == "decimal":
        return DecimalType(avro["precision"], avro["scale"])
    return _LOGICAL.get(avro.get("logicalType", ""), None) or _type(avro["type"], named)
