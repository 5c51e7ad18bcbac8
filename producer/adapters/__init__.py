"""One outside system each: they translate at the border and decide nothing."""
