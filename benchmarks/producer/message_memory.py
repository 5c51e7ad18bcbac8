"""How much memory decoding and translating one message of 4 MB takes, at most.

    python -m benchmarks.producer.message_memory [one | rows]

`one` is a change with one large text, `rows` are some 2,000 rows with ten changes each.  In MiB
above what the process holds before, as the kernel counts it (Linux only).
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from pathlib import Path

from benchmarks.producer.responses import STREAM, TABLE, Case, large_response, responses
from benchmarks.producer.stages import table_encoding
from tidegate.producer.accelerator import describe_accelerator
from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.translation.translator import Translator

_BYTES = 4_000_000
_KIB = 1_024
_RESET_MOST = "5"
"""What `clear_refs` takes to forget the most that a process has held."""


def _large(kind: str) -> bytes:
    if kind == "one":
        return large_response(_BYTES)
    found, size = [], 0
    for message in responses(Case(1, 10), 40_000)[1:]:
        size += len(message)
        if size > _BYTES:
            break
        found.append(message)
    return b"".join(found)


def _held_mib(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    (kib,) = re.findall(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kib) / _KIB


def main(kind: str) -> None:
    """Print what decoding took at most, and decoding with translating."""
    message = _large(kind)
    decoder = ResponseDecoder(ColumnTypesCache())
    translator = Translator({TABLE.name: table_encoding()}, change_stream=STREAM)
    for small in responses(Case(1, 1), 2):
        for record in decoder.decode(small):
            translator.translate(record, token="t")
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text(_RESET_MOST)
    before = _held_mib("VmRSS")
    records = decoder.decode(message)
    decoded = _held_mib("VmHWM") - before
    translated = [translator.translate(record, token="t") for record in records]
    most = _held_mib("VmHWM") - before
    print(
        f"{kind}, {len(message) / _KIB**2:.1f} MiB, {len(translated)} records, accelerator "
        f"{describe_accelerator()}: decoding {decoded:.1f} MiB, with translating {most:.1f} MiB"
    )


if __name__ == "__main__":
    main(*sys.argv[1:] or ["one"])
