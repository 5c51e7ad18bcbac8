"""The commands `up`, `demo` and `show` of `tidegate-local`; `cli` has their flags."""
