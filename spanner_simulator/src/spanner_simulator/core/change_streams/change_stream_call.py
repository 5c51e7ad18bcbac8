"""The query that reads a change stream: recognised, bound to its stream, and checked in order.

The order of the checks is the service's: function, shape, arguments (start, end, heartbeat,
read_options), then the transaction (checked by the server), then token and stream partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spanner_simulator.core.change_streams.call_syntax import (
    ARGUMENT_NAMES,
    Argument,
    CallSyntax,
    Expression,
    LiteralValue,
    Parameter,
    find_call,
)
from spanner_simulator.core.change_streams.query_errors import (
    located,
    no_longer_valid,
    start_too_old,
    time_text,
)
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.change_streams.stream_partitions import StreamPartitions
from spanner_simulator.core.plain_forms import read_int
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.schema_objects import ChangeStream
from spanner_simulator.core.schema.statements import ObjectKind
from spanner_simulator.core.timestamps import parse_ns
from spanner_simulator.core.tokens import content
from spanner_simulator.core.values import Dialect, Plain
from spanner_simulator.errors import Code, SpannerError, invalid_argument, not_found, out_of_range

_FUTURE_MAX_NS = 600 * 10**9
_MUTABLE_WINDOW_MAX_NS = 1800 * 10**9
_HEARTBEAT_MS_MIN, _HEARTBEAT_MS_MAX = 100, 300_000
NO_END_NS = parse_ns("9999-12-31T00:00:00Z")
_TYPES = ("TIMESTAMP", "TIMESTAMP", "STRING", "INT64", "ARRAY<STRING>")
_LITERAL_TYPES = {
    "null": "NULL",
    "text": "STRING",
    "timestamp": "TIMESTAMP",
    "integer": "INT64",
    "float": "FLOAT64",
    "array": "ARRAY<STRING>",
}


@dataclass(frozen=True, slots=True)
class ChangeStreamCall:
    """A well-formed call: the stream, its function's name, arguments by canonical name."""

    stream: ChangeStream
    function: str
    arguments: Mapping[str, Argument]


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Checked arguments; `end_ns` None means without end, `token` None the initial query."""

    start_ns: int
    end_ns: int | None
    token: str | None
    heartbeat_us: int


def is_change_stream_query(sql: str, dialect: Dialect | None = None) -> bool:
    """Whether a statement calls a read function, known or not; None: in either dialect."""
    dialects: tuple[Dialect, ...] = ("GOOGLE_STANDARD_SQL", "POSTGRESQL")
    for candidate in dialects if dialect is None else (dialect,):
        try:
            if find_call(sql, candidate) is not None:
                return True
        except SpannerError:
            return True
    return False


def parse_call(
    sql: str, catalogue: Catalogue, *, role: str, types: Mapping[str, str] | None = None
) -> ChangeStreamCall:
    """Check function, privileges of the role (empty: all), shape and argument types, in this order.

    `types` are the declared types of parameters, such as INT64, by lower-case name.
    """
    dialect = catalogue.dialect
    syntax = find_call(sql, dialect)
    if syntax is None:
        raise invalid_argument("Not a change stream query")
    types = types or {}
    stream = _find_stream(syntax, catalogue)
    if stream is None:
        raise _not_found(sql, syntax, dialect)
    function = stream.read_function(dialect)
    if role:
        _check_privileges(catalogue, role, stream, function)
    arguments = _by_name(sql, syntax, function)
    _check_shape(sql, syntax, function, dialect)
    _check_types(sql, syntax, function, arguments, types=types, dialect=dialect)
    return ChangeStreamCall(stream, function, arguments)


def _find_stream(syntax: CallSyntax, catalogue: Catalogue) -> ChangeStream | None:
    if catalogue.dialect == "POSTGRESQL":
        if syntax.schema != "spanner":
            return None
        for stream in catalogue.streams.values():
            if syntax.function == stream.read_function("POSTGRESQL"):
                return stream
        return None
    if syntax.schema is not None:
        return None
    return catalogue.streams.get(syntax.function[len("READ_") :].lower())


def _not_found(sql: str, syntax: CallSyntax, dialect: Dialect) -> SpannerError:
    name = syntax.function if syntax.schema is None else f"{syntax.schema}.{syntax.function}"
    if dialect == "GOOGLE_STANDARD_SQL":
        return located(f"Table-valued function not found: {name}", sql, syntax.at)
    return not_found(
        f"[ERROR] function {name} does not exist\nHint: No function matches the given name and "
        "argument types. You might need to add explicit type casts.",
    )


def _check_privileges(catalogue: Catalogue, role: str, stream: ChangeStream, function: str) -> None:
    needed: tuple[tuple[ObjectKind, str, str], ...] = (
        ("CHANGE STREAM", stream.name, "SELECT"),
        ("TABLE FUNCTION", function, "EXECUTE"),
    )
    for kind, name, privilege in needed:
        if not catalogue.has_privilege(role, kind, name, privilege):
            raise SpannerError(
                Code.PERMISSION_DENIED,
                f"Role {role} does not have required privileges: {privilege} on {kind.lower()} "
                f"{name} is missing.",
            )


def _by_name(sql: str, syntax: CallSyntax, function: str) -> dict[str, Argument]:
    arguments = dict(zip(ARGUMENT_NAMES, syntax.positional, strict=False))
    seen: set[str] = set()
    for written, position, argument in syntax.named:
        name = written.lower()
        if name not in ARGUMENT_NAMES:
            raise located(
                f"Named argument {written} not found in signature for call to function {function}",
                sql,
                position,
            )
        if name in seen:
            raise located(
                f"Duplicate named argument {written} found in call to function {function}",
                sql,
                position,
            )
        if name in arguments:
            index = ARGUMENT_NAMES.index(name) + 1
            raise located(
                f"Named argument `{name}` duplicates positional argument {index}, which also "
                f"provides `{name}`",
                sql,
                position,
            )
        seen.add(name)
        arguments[name] = argument
    return arguments


def _combined(function: str, dialect: Dialect) -> SpannerError:
    if dialect == "POSTGRESQL":
        form = f'select * from "spanner"."{function}"(<args>)'  # noqa: S608  # a text for people
    else:
        form = f"SELECT ChangeRecord FROM {function}(<args>)"  # noqa: S608  # a text for people
    return SpannerError(
        Code.UNIMPLEMENTED,
        "Change stream TVF must not be combined with any other SQL statements. Change stream "
        f"records should be read using `{form}`.",
    )


def _check_shape(sql: str, syntax: CallSyntax, function: str, dialect: Dialect) -> None:
    if not syntax.is_alone:
        raise _combined(function, dialect)
    words = syntax.columns
    if len(words) != 1:
        raise _combined(function, dialect)
    (word,) = words
    if word.is_symbol("*"):
        return
    text = str(content(word, dialect))
    if dialect == "POSTGRESQL":
        folded = text if word.kind == "quoted_name" else text.lower()
        if word.kind in ("name", "quoted_name") and folded != function:
            raise invalid_argument(f'[ERROR] column "{folded}" does not exist')
        if folded == function:
            return
    elif text == "ChangeRecord":
        return
    elif word.kind in ("name", "quoted_name") and text.lower() != "changerecord":
        raise located(f"Unrecognized name: {text}", sql, word.at)
    raise _combined(function, dialect)


def _type_of(argument: Argument, types: Mapping[str, str], default: str) -> str:
    match argument:
        case Parameter():
            return types.get(argument.name, default)
        case LiteralValue():
            return _LITERAL_TYPES[argument.kind]
        case _:
            return default


def _check_types(
    sql: str,
    syntax: CallSyntax,
    function: str,
    arguments: Mapping[str, Argument],
    *,
    types: Mapping[str, str],
    dialect: Dialect,
) -> None:
    """Reject wrong types, then expressions, then arguments that would need a conversion."""
    types_given = [
        _type_of(arguments[name], types, expected) if name in arguments else expected
        for name, expected in zip(ARGUMENT_NAMES, _TYPES, strict=True)
    ]
    extra = syntax.positional[len(_TYPES) :]
    types_given += [_type_of(kind, types, "STRING") for kind in extra]
    types_given = [
        expected if kind == "NULL" else kind
        for kind, expected in zip(types_given, [*_TYPES, *("NULL",) * len(extra)], strict=True)
    ]
    fits = all(
        kind == expected
        or (kind == "STRING" and (expected == "TIMESTAMP" or dialect == "POSTGRESQL"))
        for kind, expected in zip(types_given, _TYPES, strict=False)
    )
    if (extra or not fits) and dialect == "POSTGRESQL":
        raise _not_found(sql, syntax, dialect)
    if extra or not fits:
        raise located(
            f"No matching signature for {function} for argument types: {', '.join(types_given)}. "
            f"Supported signature: {function}({', '.join(f'[{kind}]' for kind in _TYPES)})",
            sql,
            syntax.at,
        )
    for index, (name, expected) in enumerate(zip(ARGUMENT_NAMES, _TYPES, strict=True)):
        argument = arguments.get(name)
        if isinstance(argument, Expression) or (
            isinstance(argument, Parameter) and types.get(argument.name, expected) != expected
        ):
            raise invalid_argument(
                f"Invalid argument of change stream TVF {function}. Argument {index} is not a "
                "literal or parameter. Implicit type conversions are not supported."
            )
        if (
            expected == "TIMESTAMP"
            and isinstance(argument, LiteralValue)
            and argument.kind == "text"
        ):
            _check_timestamp_literal(sql, syntax, str(argument.text))


def _check_timestamp_literal(sql: str, syntax: CallSyntax, text: str) -> None:
    try:
        parse_ns(text)
    except SpannerError as error:
        raise located(
            f'Could not cast literal "{text}" to type TIMESTAMP',
            sql,
            max(sql.find(text) - 1, syntax.at),
        ) from error


def resolve(
    call: ChangeStreamCall,
    parameters: Mapping[str, Plain],
    *,
    now_us: int,
    kept_since_us: int = 0,
    is_resumed: bool = False,
) -> CallArguments:
    """Bind parameters (by lower-case name) and check start, end, heartbeat and read_options.

    A resumed query may have begun before the retention period: only the remaining part has to be
    within it.  For a query of the stream partitions that is all of it.  `kept_since_us` is as in
    `check_start`.
    """
    values = {name: _value(call.arguments.get(name), parameters) for name in ARGUMENT_NAMES}
    start, end = values["start_timestamp"], values["end_timestamp"]
    if start is None:
        raise invalid_argument("start_timestamp must not be null.")
    start_ns = parse_ns(str(start))
    end_ns = None if end is None else parse_ns(str(end))
    if end_ns is None and call.stream.partition_mode == "MUTABLE_KEY_RANGE":
        raise invalid_argument("end_timestamp must not be null.")
    token = values["partition_token"]
    if token is None or not is_resumed:
        check_start(call.stream, start_ns, now_us=now_us, kept_since_us=kept_since_us)
    if end_ns is not None:
        _check_end(call.stream, start_ns, end_ns)
    heartbeat_ms = _heartbeat_ms(values["heartbeat_milliseconds"])
    if values["read_options"] is not None:
        raise SpannerError(Code.UNIMPLEMENTED, "read_options must be null.")
    has_end = end_ns is not None and end_ns < NO_END_NS
    return CallArguments(
        start_ns,
        end_ns if has_end else None,
        None if token is None else str(token),
        heartbeat_ms * 1000,
    )


def _value(argument: Argument | None, parameters: Mapping[str, Plain]) -> Plain:
    match argument:
        case Parameter(name):
            if name not in parameters:
                raise invalid_argument(f"No parameter found for binding: {name}")
            return parameters[name]
        case LiteralValue():
            return argument.text
        case _:
            return None


def check_start(
    stream: ChangeStream, start_ns: int, *, now_us: int, kept_since_us: int = 0
) -> None:
    """OUT_OF_RANGE unless a query may start then.

    `kept_since_us` is the earliest time that a shorter former retention period has left.
    """
    earliest_us = max(now_us - stream.retention_us, stream.created_us, kept_since_us)
    if start_ns < earliest_us * 1000:
        raise start_too_old(start_ns, earliest_us)
    latest_ns = now_us * 1000 + _FUTURE_MAX_NS
    if start_ns > latest_ns:
        raise out_of_range(
            "Specified start_timestamp is too far in the future. Please specify a start_timestamp "
            f"within the earliest read timestamp: {time_text(earliest_us * 1000)}, and the current "
            f"maximum start timestamp: {time_text(latest_ns)}. Received start_timestamp: "
            f"{time_text(start_ns)}."
        )


def _check_end(stream: ChangeStream, start_ns: int, end_ns: int) -> None:
    if start_ns > end_ns:
        raise invalid_argument(
            "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received "
            f"start_timestamp: {time_text(start_ns)}, end_timestamp: {time_text(end_ns)}."
        )
    latest_ns = start_ns + _MUTABLE_WINDOW_MAX_NS
    if stream.partition_mode == "MUTABLE_KEY_RANGE" and end_ns > latest_ns:
        raise out_of_range(
            "Specified end_timestamp is too far in the future. Please specify an end_timestamp "
            f"within the earliest start timestamp: {time_text(start_ns)}, and the current maximum "
            f"end timestamp: {time_text(latest_ns)}. Received end_timestamp: {time_text(end_ns)}."
        )


def _heartbeat_ms(plain: Plain) -> int:
    if plain is None:
        raise invalid_argument("heartbeat_milliseconds must not be null.")
    heartbeat_ms = read_int(plain)
    if not _HEARTBEAT_MS_MIN <= heartbeat_ms <= _HEARTBEAT_MS_MAX:
        raise out_of_range(
            f"heartbeat_milliseconds must be within min {_HEARTBEAT_MS_MIN} and max "
            f"{_HEARTBEAT_MS_MAX}. Received heartbeat_milliseconds: {heartbeat_ms}."
        )
    return heartbeat_ms


def check_partition(
    stream: ChangeStream, partitions: StreamPartitions, token: str, *, start_ns: int, now_us: int
) -> StreamPartition:
    """The stream partition of a token, if the query may start in its lifetime."""
    partition = partitions.by_token.get(token)
    if partition is None:
        if token in partitions.expired_tokens:
            raise no_longer_valid()
        raise invalid_argument(
            "Specified partition_token is invalid, as it does not belong to the Change Stream "
            f"associated with the TVF. Received partition_token: {token}."
        )
    if partition.end_us is not None and partition.end_us < now_us - stream.retention_us:
        raise no_longer_valid()
    latest_ns = (
        now_us * 1000 + _FUTURE_MAX_NS if partition.end_us is None else partition.end_us * 1000
    )
    if not partition.start_us * 1000 <= start_ns <= latest_ns:
        raise out_of_range(
            "Specified start_timestamp is invalid for the partition. Please specify a "
            f"start_timestamp within {time_text(partition.start_us * 1000)} and "
            f"{time_text(latest_ns)}. Received start_timestamp: {time_text(start_ns)}."
        )
    return partition
