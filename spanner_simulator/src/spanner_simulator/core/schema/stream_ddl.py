"""Change stream statements of both dialects: text to statements, options checked for their kind.

The dialects differ in OPTIONS against WITH, in SET OPTIONS against SET and RESET, and in the texts
for a bad option.
"""

from __future__ import annotations

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.errors import Code, SpannerError, failed_precondition, unsupported

_TEXTS = ("retention_period", "value_capture_type", "partition_mode")
_BOOLS = (
    "exclude_insert",
    "exclude_update",
    "exclude_delete",
    "exclude_ttl_deletes",
    "allow_txn_exclusion",
)
_Options = tuple[tuple[str, ddl.OptionValue], ...]


def create_stream(words: DdlWords) -> ddl.CreateStream:
    """CREATE CHANGE STREAM, after those words."""
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    name = _stream_name(words, "CREATE")
    watch = _watch(words) if words.accept("FOR") else None
    begins = "OPTIONS" if words.dialect == "GOOGLE_STANDARD_SQL" else "WITH"
    options = _options(words, "CREATE") if words.accept(begins) else ()
    return ddl.CreateStream(name, watch, options, if_not_exists)


def alter_stream(words: DdlWords) -> ddl.Statement:
    """ALTER CHANGE STREAM, after those words."""
    name = _stream_name(words, "ALTER")
    if words.accept("DROP", "FOR"):
        if words.dialect == "POSTGRESQL" and words.peek().kind == "name":
            if not words.accept("ALL"):
                words.reject("Only DROP FOR ALL is supported for now.")
        else:
            words.expect("ALL")
        return ddl.AlterStreamWatch(name, None)
    if words.accept("SET", "FOR"):
        return ddl.AlterStreamWatch(name, _watch(words))
    if words.dialect == "GOOGLE_STANDARD_SQL":
        if words.accept("SET", "OPTIONS"):
            return ddl.AlterStreamOptions(name, _options(words, "ALTER"))
    elif words.accept("SET"):
        return ddl.AlterStreamOptions(name, _options(words, "ALTER"))
    elif words.accept("RESET"):
        return ddl.AlterStreamOptions(name, _reset(words))
    return words.encountered("alter_change_stream_statement")


def _stream_name(words: DdlWords, verb: str) -> str:
    name = words.object_name()
    if "." not in name:
        return name
    if words.dialect == "POSTGRESQL":
        words.reject(f"Schema name can only be 'public' in <{verb} CHANGE STREAM> statement.")
    raise SpannerError(
        Code.UNIMPLEMENTED, f"Change Stream not yet supported in named schema: {name}."
    )


def _watch(words: DdlWords) -> ddl.Watch:
    if words.accept("ALL"):
        return ddl.Watch(everything=True)
    if words.peek().kind not in ("name", "quoted_name"):
        words.encountered("change_stream_for_clause")
    tables: list[tuple[str, tuple[str, ...] | None]] = []
    while True:
        table = words.object_name()
        columns: tuple[str, ...] | None = None
        if words.accept_symbol("("):
            columns = () if words.peek().is_symbol(")") else words.names()
            words.expect_symbol(")")
        tables.append((table, columns))
        if not words.accept_symbol(","):
            return ddl.Watch(tables=tuple(tables))


def _options(words: DdlWords, verb: str) -> _Options:
    words.expect_symbol("(")
    options: dict[str, ddl.OptionValue] = {}
    while True:
        name = words.name()
        words.expect_symbol("=")
        value = _option_value(words)
        _check_kind(words, verb, name, value)
        if name.lower() in options:
            if words.dialect == "GOOGLE_STANDARD_SQL":
                words.reject(f"Duplicate option: {name}")
            words.reject(
                f"Contains duplicate change stream option '{name}' in <{verb} CHANGE STREAM> "
                "statement."
            )
        options[name.lower()] = _converted(name.lower(), value)
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    return tuple(options.items())


def _reset(words: DdlWords) -> _Options:
    names = words.names_in_brackets()
    for name in names:
        _check_kind(words, "ALTER", name, None)
    return tuple((name.lower(), None) for name in names)


def _option_value(words: DdlWords) -> ddl.OptionValue:
    """A text, a whole number, a boolean, or None for NULL."""
    for keyword, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
        if words.accept(keyword):
            return value
    word = words.peek()
    if word.kind == "text":
        return words.take().text
    if word.kind == "number" or word.is_symbol("-"):
        return words.integer()
    return words.encountered("option value")


def _converted(name: str, value: ddl.OptionValue) -> ddl.OptionValue:
    """PostgreSQL converts 'true' to a boolean, and true to a text, which then fits nothing."""
    if name in _BOOLS and isinstance(value, str):
        return value.lower() == "true"
    if name in _TEXTS and isinstance(value, bool):
        return str(value).lower()
    return value


def _check_kind(words: DdlWords, verb: str, name: str, value: ddl.OptionValue) -> None:
    option = name.lower()
    if option == "per_placement_tvf":
        raise unsupported("change stream option per_placement_tvf")
    if words.dialect == "GOOGLE_STANDARD_SQL":
        if option not in (*_TEXTS, *_BOOLS):
            words.reject(f"Option: {name} is unknown.")
        kind, kinds = (str, "strings") if option in _TEXTS else (bool, "booleans")
        if not (value is None or isinstance(value, kind)):
            words.reject(
                f"Unexpected value for option: {name}. Supported option values are {kinds} and "
                "NULL."
            )
        if value == "":
            words.reject("Invalid string literal: ''")
        return
    statement = f"in <{verb} CHANGE STREAM> statement."
    if option not in (*_TEXTS, *_BOOLS):
        words.reject(f"Invalid change stream option '{name}' {statement}")
    if isinstance(value, int) and not isinstance(value, bool):
        words.reject(f"Failed to provide valid option value for '{name}' {statement}")
    if option in _BOOLS and isinstance(value, str) and value.lower() not in ("true", "false"):
        raise failed_precondition(
            f"Unsupported option value in change stream option '{name}' {statement}"
        )
