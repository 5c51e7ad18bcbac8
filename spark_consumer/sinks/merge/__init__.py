"""Tables of rows, merged: the mirror, the history, rows by key."""
