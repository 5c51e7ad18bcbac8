"""`tidegate-producer console`: pages that show a stream, its fleet and its releases; read only."""
