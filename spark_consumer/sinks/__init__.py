"""Where releases are written: the port, decoding, the manifest, one package per kind of sink."""
