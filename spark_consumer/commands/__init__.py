"""The commands of `tidegate-consumer`, one module per command; `cli` has their flags."""
