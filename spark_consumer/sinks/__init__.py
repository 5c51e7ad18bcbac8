"""Where releases are written: the port, decoding, the manifest, one package per kind of sink.

`append` has the sinks that append, into tables of Delta (`delta/`), of Iceberg or files; `merge/`
has the mirror, the history and the mirror by key.
"""
