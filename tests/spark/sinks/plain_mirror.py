"""A table as a dictionary: the slow, obvious way; and histories of its keys."""

from __future__ import annotations

from hypothesis import strategies as st

__all__ = ["HISTORIES", "PlainMirror"]


class PlainMirror:
    """Columns `a` and `b` by key; `incomplete` lists the key of each UPDATE without a row."""

    def __init__(self):
        self.rows = {}
        self.incomplete = []

    def apply_release(self, history):
        """Voids what a later whole change of the release makes void, as the sink does."""
        last_whole = {}
        for n, (mod, key, _) in enumerate(history):
            if mod != "UPDATE":
                last_whole[key] = n
        for n, (mod, key, new) in enumerate(history):
            if mod == "INSERT":
                self.rows[key] = {"a": None, "b": None} | new
            elif mod == "DELETE":
                self.rows.pop(key, None)
            elif key in self.rows:
                self.rows[key] = self.rows[key] | new
            elif n > last_whole.get(key, -1):
                self.incomplete.append(key)


VALUES = st.fixed_dictionaries(
    {}, optional={"a": st.sampled_from([None, "x", "y"]), "b": st.sampled_from([None, 1, 2])}
)
WHOLE = st.fixed_dictionaries(
    {"a": st.sampled_from([None, "x", "y"]), "b": st.sampled_from([None, 1, 2])}
)
STEP = st.one_of(
    st.tuples(st.just("INSERT"), WHOLE),
    st.tuples(st.just("UPDATE"), VALUES),
    st.tuples(st.just("DELETE"), st.none()),
)
# Each key has its own history in each of three releases: one example tries dozens of histories.
HISTORIES = st.lists(
    st.tuples(*(st.lists(STEP, max_size=4) for _ in range(3))), min_size=20, max_size=60
)
