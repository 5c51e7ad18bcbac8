"""Examples of the public pages of Spanner's change streams and of Datastream, letter by letter.

None of them is JSON as it is: they have comments, NULL, dots for what is left out, texts without
quotes, commas that are missing or too many, and braces that are not closed.  `example` corrects
that.  The texts are in `examples_of_pages`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DATA_CHANGES = (
    "data_change_of_one_account",
    "data_change_of_the_other_account",
    "data_change_new_values",
    "data_change_new_row",
    "data_change_new_row_and_old_values",
)
MERGED = ("first_children", "second_children", "merged_child")
"""Each of them is there twice: with texts, and with numbers as record sequences."""
_TEXTS = Path(__file__).parent / "examples_of_pages"
ORACLE = ("oracle_insert", "oracle_update", "oracle_delete")


def example(name: str) -> dict[str, Any]:
    """Return an example as an object; of a record of Spanner, its kind is the only name."""
    text = (_TEXTS / f"{name}.txt").read_text()
    text = re.sub(r"//.*", "", text)
    text = re.sub(r"^\s*\.\.\.\s*$", "", text, flags=re.MULTILINE)
    text = text.replace("NULL", "null")
    text = re.sub(r"(?<=[\[ ])(child_token_\d)(?=[,\]])", r'"\1"', text)
    text = re.sub(r"^([a-z_]+):", r'"\1":', text)
    text = re.sub(r'(["\d}\]]|true|false|null)(\s*\n\s*["{])', r"\1,\2", text)
    text = re.sub(r",(\s*[}\]])", r"\1", text)
    text = text.strip().rstrip(",")
    # Datastream's events close neither their metadata nor themselves.
    text = re.sub(r',(\s*"payload")', r"},\1", text)
    text += "}" * (text.count("{") - text.count("}"))
    found = json.loads(f"{{{text}}}")
    assert isinstance(found, dict)
    return found
