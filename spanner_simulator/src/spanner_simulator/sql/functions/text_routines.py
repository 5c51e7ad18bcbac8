"""Functions of strings and bytes, and what decides between them: patterns, encodings, hashes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.functions.routines import out_of_range, routine

if TYPE_CHECKING:
    from collections.abc import Sequence


_TRUE = frozenset(("true", "t", "yes", "y", "on", "1"))
_FALSE = frozenset(("false", "f", "no", "n", "off", "0"))
_TEXT_MAX = 1 << 20


@routine("BOOLEAN", "VARCHAR")
def text_to_bool(text: str) -> bool:
    """CAST to BOOL."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise out_of_range(f"Bad bool value: {text}")


@routine("BOOLEAN", "VARCHAR")
def pg_text_to_bool(text: str) -> bool:
    """CAST to boolean."""
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise SpannerError(
        Code.INVALID_ARGUMENT, f'[ERROR] invalid input syntax for type boolean: "{text}"'
    )


@routine("VARCHAR", "BLOB")
def bytes_to_text(value: bytes) -> str:
    """CAST to STRING."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise out_of_range("Invalid cast of bytes to UTF8 string") from None


@routine("VARCHAR", "BLOB")
def bytes_to_text_safe(value: bytes) -> str:
    """Bytes that are no UTF-8 become replacement characters."""
    return value.decode(errors="replace")


@routine("VARCHAR", "BLOB")
def bytes_as_letters(value: bytes) -> str:
    """A letter for each byte, so that patterns of bytes match as those of texts do."""
    return value.decode("latin-1")


@routine("BLOB", "VARCHAR")
def text_to_bytes(text: str) -> bytes:
    """CAST to BYTES."""
    return text.encode()


@routine("BLOB", "VARCHAR")
def text_to_bytes_pg(text: str) -> bytes:
    r"""CAST to bytea: hexadecimal after `\x`, else with `\\` and octal escapes."""
    try:
        if text.startswith("\\x"):
            return bytes.fromhex(text[2:])
        found = re.sub(
            rb"\\(\\|[0-3][0-7]{2})",
            lambda one: b"\\" if one[1] == b"\\" else bytes([int(one[1], 8)]),
            text.encode(),
        )
    except ValueError:
        raise SpannerError(
            Code.INVALID_ARGUMENT, f'[ERROR] invalid input syntax for type bytea: "{text}"'
        ) from None
    return found


@routine("VARCHAR", "BLOB")
def bytes_to_text_pg(value: bytes) -> str:
    r"""CAST of bytea to text: `\x` and hexadecimal."""
    return "\\x" + value.hex()


@routine("VARCHAR", "VARCHAR")
def text_to_uuid(text: str) -> str:
    """CAST to UUID."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise out_of_range(f"Invalid UUID value: {text}") from None


@routine("VARCHAR", "VARCHAR")
def pg_text_to_uuid(text: str) -> str:
    """CAST to uuid."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise SpannerError(
            Code.INVALID_ARGUMENT, f'[ERROR] invalid input syntax for type uuid: "{text}"'
        ) from None


@routine("VARCHAR", is_volatile=True)
def generate_uuid() -> str:
    """A random UUID, a new one for each row."""
    return str(uuid.uuid4())


@routine("VARCHAR", "VARCHAR", "BIGINT", "BIGINT")
def text_part(text: str, start: int, length: int) -> str:
    """SUBSTR: 1-based, negative positions count from the end."""
    return str(_part(text, start, length))


@routine("BLOB", "BLOB", "BIGINT", "BIGINT")
def bytes_part(value: bytes, start: int, length: int) -> bytes:
    """SUBSTR of bytes."""
    return bytes(_part(value, start, length))


def _part(value: Any, start: int, length: int) -> Any:
    if length < 0:
        raise out_of_range("Third argument in SUBSTR() cannot be negative")
    start = max(0, len(value) + start if start < 0 else start - 1)
    return value[start : start + length]


@routine("VARCHAR", "VARCHAR", "BIGINT")
def left_text(text: str, length: int) -> str:
    """LEFT."""
    return text[: _positive("LEFT", length)]


@routine("VARCHAR", "VARCHAR", "BIGINT")
def right_text(text: str, length: int) -> str:
    """RIGHT."""
    return text[max(0, len(text) - _positive("RIGHT", length)) :]


def _positive(name: str, length: int) -> int:
    if length < 0:
        raise out_of_range(f"Second argument in {name}() cannot be negative")
    return length


@routine("VARCHAR", "VARCHAR")
def upper_text(text: str) -> str:
    """UPPER, by the full rules of Unicode."""
    return text.upper()


@routine("VARCHAR", "VARCHAR")
def lower_text(text: str) -> str:
    """LOWER, by the full rules of Unicode."""
    return text.lower()


@routine("VARCHAR", "VARCHAR")
def reverse_text(text: str) -> str:
    """REVERSE: code point by code point."""
    return text[::-1]


@routine("VARCHAR", "VARCHAR", "BIGINT", "BIGINT")
def pg_part(text: str, start: int, length: int) -> str:
    """PostgreSQL's substr: positions before the first one count into the length."""
    if length < 0:
        raise out_of_range("negative substring length not allowed")
    return text[max(0, start - 1) : max(0, start - 1 + length)]


@routine("VARCHAR", "VARCHAR", "BIGINT", "VARCHAR")
def lpad_text(text: str, length: int, pattern: str) -> str:
    """LPAD; longer texts are cut."""
    return (
        (_padding(len(text), length, pattern) + text)[:length]
        if length > len(text)
        else _cut(text, length)
    )


@routine("VARCHAR", "VARCHAR", "BIGINT", "VARCHAR")
def rpad_text(text: str, length: int, pattern: str) -> str:
    """RPAD; longer texts are cut."""
    if length > len(text):
        return text + _padding(len(text), length, pattern)
    return _cut(text, length)


def _cut(text: str, length: int) -> str:
    if length < 0:
        raise out_of_range("Second argument (output size) for LPAD/RPAD cannot be negative")
    return text[:length]


def _padding(size: int, length: int, pattern: str) -> str:
    if not pattern:
        raise out_of_range("Third argument (pad pattern) for LPAD/RPAD cannot be empty")
    if length > _TEXT_MAX:
        raise out_of_range("Output of LPAD/RPAD exceeds max allowed output size of 1MB")
    missing = length - size
    return (pattern * (missing // len(pattern) + 1))[:missing]


@routine("VARCHAR", "VARCHAR", "BIGINT")
def repeat_text(text: str, count: int) -> str:
    """REPEAT."""
    if count < 0:
        raise out_of_range("Second argument (repeat count) for REPEAT cannot be negative")
    if len(text) * count > _TEXT_MAX:
        raise out_of_range("Output of REPEAT exceeds max allowed output size of 1MB")
    return text * count


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def trim_set(text: str, characters: str) -> str:
    """TRIM of a set of characters."""
    return text.strip(characters)


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def ltrim_set(text: str, characters: str) -> str:
    """LTRIM of a set of characters."""
    return text.lstrip(characters)


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def rtrim_set(text: str, characters: str) -> str:
    """RTRIM of a set of characters."""
    return text.rstrip(characters)


@routine("VARCHAR", "VARCHAR")
def trim_space(text: str) -> str:
    """TRIM of white space."""
    return text.strip()


@routine("VARCHAR", "VARCHAR")
def ltrim_space(text: str) -> str:
    """LTRIM of white space."""
    return text.lstrip()


@routine("VARCHAR", "VARCHAR")
def rtrim_space(text: str) -> str:
    """RTRIM of white space."""
    return text.rstrip()


@routine("VARCHAR[]", "VARCHAR", "VARCHAR")
def split_text(text: str, delimiter: str) -> list[str]:
    """SPLIT; an empty delimiter splits into characters."""
    if not text:
        return [""]
    return text.split(delimiter) if delimiter else list(text)


@routine("VARCHAR", "VARCHAR[]", "VARCHAR", "VARCHAR", takes_null=True)
def join_texts(
    texts: Sequence[str | None] | None, delimiter: str | None, null_text: str | None
) -> str | None:
    """ARRAY_TO_STRING; NULL elements are left out unless there is a text for them."""
    if texts is None or delimiter is None:
        return None
    shown = [null_text if text is None else text for text in texts]
    return delimiter.join(text for text in shown if text is not None)


@routine("BLOB", "VARCHAR")
def bytes_from_hex(text: str) -> bytes:
    """FROM_HEX."""
    try:
        return binascii.unhexlify(text.rjust(len(text) + len(text) % 2, "0"))
    except (binascii.Error, ValueError):
        raise out_of_range("Failed to decode invalid hex string") from None


@routine("BLOB", "VARCHAR")
def bytes_from_base64(text: str) -> bytes:
    """FROM_BASE64."""
    text = "".join(text.split()).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise out_of_range("Failed to decode invalid base64 string") from None


@routine("VARCHAR", "BLOB")
def bytes_to_base64(value: bytes) -> str:
    """TO_BASE64."""
    return base64.b64encode(value).decode()


@routine("BLOB", "BLOB")
def hash_sha1(value: bytes) -> bytes:
    """SHA1."""
    return hashlib.sha1(value).digest()  # noqa: S324  # SQL's function, not a protection


@routine("BLOB", "BLOB")
def hash_sha256(value: bytes) -> bytes:
    """SHA256."""
    return hashlib.sha256(value).digest()


@routine("BLOB", "BLOB")
def hash_sha512(value: bytes) -> bytes:
    """SHA512."""
    return hashlib.sha512(value).digest()


@routine("BIGINT[]", "VARCHAR")
def code_points(text: str) -> list[int]:
    """TO_CODE_POINTS."""
    return [ord(character) for character in text]


@routine("VARCHAR", "BIGINT[]")
def text_of_code_points(points: Sequence[int | None]) -> str | None:
    """CODE_POINTS_TO_STRING; NULL when one is."""
    letters: list[str] = []
    for point in points:
        if point is None:
            return None
        if not 0 <= point <= 0x10FFFF or 0xD800 <= point < 0xE000:
            raise out_of_range(f"Invalid codepoint {point}")
        letters.append(chr(point))
    return "".join(letters)


@routine("BIGINT", "VARCHAR", "VARCHAR", "BIGINT", "BIGINT")
def instr_text(text: str, part: str, start: int, occurrence: int) -> int:
    """INSTR: the 1-based position of an occurrence, 0 without; from the end for start < 0."""
    if start == 0 or occurrence < 1:
        raise out_of_range("INSTR: position must not be 0, and occurrence must be positive")
    if start > 0:
        at = start - 2
        for _ in range(occurrence):
            at = text.find(part, at + 1)
            if at < 0:
                return 0
        return at + 1
    end = len(text) + start + len(part)
    at = -1
    for _ in range(occurrence):
        at = text.rfind(part, 0, max(0, end))
        if at < 0:
            return 0
        end = at + len(part) - 1
    return at + 1


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    # RE2, which the service has, knows neither of these.
    found = re.search(r"\(\?<?[=!]|\(\?>", text)
    if found is not None:
        raise out_of_range(
            f"Cannot parse regular expression: invalid perl operator: {found.group()}"
        )
    try:
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise out_of_range(f"Cannot parse regular expression: {error}") from None


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def regexp_first(text: str, pattern: str) -> str | None:
    """REGEXP_EXTRACT: the first match, or its only group."""
    compiled = _extracting(pattern)
    found = compiled.search(text)
    return None if found is None else found.group(compiled.groups)


def _extracting(pattern: str) -> re.Pattern[str]:
    compiled = _pattern(pattern)
    if compiled.groups > 1:
        raise out_of_range(
            "Regular expressions passed into extraction functions must not have more than 1 "
            "capturing group"
        )
    return compiled


@routine("VARCHAR[]", "VARCHAR", "VARCHAR")
def regexp_every(text: str, pattern: str) -> list[str]:
    """REGEXP_EXTRACT_ALL; a group that took no part is empty."""
    compiled = _extracting(pattern)
    return [found.group(compiled.groups) or "" for found in compiled.finditer(text)]
