"""Figures as HTML: every text is escaped."""

from __future__ import annotations

from tidegate.spark_consumer.core.html_table import html_table


def test_a_table_has_its_head_its_rows_and_its_title():
    assert html_table(("figure", "value"), [("lag_s", 1.26), ("gaps", [])], title="<a>") == (
        "<table><caption>&lt;a&gt;</caption>"
        "<thead><tr><th>figure</th><th>value</th></tr></thead>"
        "<tbody><tr><td>lag_s</td><td>1.3</td></tr><tr><td>gaps</td><td>none</td></tr></tbody>"
        "</table>"
    )


def test_what_is_in_a_value_is_shown_line_by_line_and_never_taken_for_markup():
    cells = [(None, {"<b>": ["x&y", 2], "none": {}}, ("<i>",), 0)]

    assert html_table((), cells).split("<tbody>")[1] == (
        "<tr><td>-</td><td>&lt;b&gt;: x&amp;y<br>2<br>none: none</td><td>&lt;i&gt;</td><td>0</td>"
        "</tr></tbody></table>"
    )
