"""What the fuzz targets share: a way to damage bytes, and how many examples a run takes.

Under `make test` a target runs as many examples as any other property.  `python tests/fuzz` sets
the number, and loads the profile that is registered here.
"""

import os
from collections.abc import Iterable

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("TIDEGATE_FUZZ_EXAMPLES", "1000")),
    deadline=None,
    # What failed before comes first; nothing else is remembered, so that a seed says it all.
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


# Numbers that lengths, counts and indexes break on.
HOSTILE = st.sampled_from(
    [0, 1, -1, -2, 63, 64, 127, 128, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**63)]
)


def varint(number: int) -> bytes:
    """Return a number as Avro's zigzag variable-length integer."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*encoded, rest])


INSERTED = (
    st.binary(max_size=8)
    | HOSTILE.map(varint)
    | HOSTILE.map(lambda n: n % 2**64).map(lambda number: number.to_bytes(8, "big"))
)


def damage(data: st.DataObject, whole: bytes) -> bytes:
    """Cut, flip, repeat or replace a few places."""
    found = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(found)))
        end = min(len(found), start + data.draw(st.integers(0, 12)))
        match data.draw(st.sampled_from(["flip", "cut", "end", "insert", "replace", "repeat"])):
            case "flip" if start < len(found):
                found[start] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del found[start:end]
            case "end":
                del found[start:]
            case "insert":
                found[start:start] = data.draw(INSERTED)
            case "replace":
                found[start:end] = data.draw(INSERTED)
            case "repeat":
                found[start:start] = found[start:end] * data.draw(st.integers(1, 3))
            case _:
                pass
    return bytes(found)


SHOWN_MAX = 2_000


def assert_reportable(error: Exception, fields: Iterable[str] = ()) -> None:
    """Check that an error has these fields, and a text that is short enough for a line of a log."""
    assert 0 < len(str(error)) < SHOWN_MAX
    assert set(fields) <= getattr(error, "fields", {}).keys()
