"""Types of rows as Spark has them: of a decoded change, from Avro's, and of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
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
from tidegate.spark_consumer.sinks.sql import quoted

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
        (branch,) = (option for option in avro if option != "null")
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


def as_nullable(schema: StructType) -> StructType:
    """Return the schema with every field nullable, as in the tables."""
    return StructType(
        [StructField(field.name, _nullable(field.dataType), nullable=True) for field in schema]
    )


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return as_nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), containsNull=True)
    return kind


def lacks_columns(have: StructType, want: StructType, *, table: str, above: str = "") -> bool:
    """Return whether a field of `want` is missing in `have`; raises SchemaError on another type."""
    types = {field.name.lower(): field.dataType for field in have}
    missing = False
    for field in want:
        kind = types.get(field.name.lower())
        if kind is None:
            missing = True
        elif isinstance(kind, StructType) and isinstance(field.dataType, StructType):
            inner = f"{above}{field.name}."
            missing |= lacks_columns(kind, field.dataType, table=table, above=inner)
        elif _nullable(kind) != field.dataType:
            raise SchemaError(
                "a column changed its type, which a table does not allow",
                hint="Write to a new --output with a new --checkpoint",
                table=table,
                column=f"{above}{field.name}",
                type_in_table=kind.simpleString(),
                type_in_topic=field.dataType.simpleString(),
            )
    return missing


def as_type(rows: DataFrame, want: StructType) -> DataFrame:
    """Return rows with the fields of another type, by name; one that they lack is null."""
    return rows.select(*_fields(rows.schema, want))


def _fields(have: StructType, want: StructType, above: Column | None = None) -> list[Column]:
    """Return columns that make rows of one type from rows of another, field by field by name."""
    types = {field.name: field.dataType for field in have}
    columns = []
    for field in want:
        kind, wanted = types.get(field.name), field.dataType
        value = F.col(quoted(field.name)) if above is None else above.getField(field.name)
        if kind is None:
            value = F.lit(None).cast(wanted)
        elif (
            isinstance(kind, StructType)
            and isinstance(wanted, StructType)
            and kind.fieldNames() != wanted.fieldNames()
        ):
            value = F.when(value.isNotNull(), F.struct(*_fields(kind, wanted, value)))
        columns.append(value.alias(field.name))
    return columns
