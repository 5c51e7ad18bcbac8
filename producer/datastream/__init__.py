"""Files that Google Datastream or Tidegate writes: their events, their order, and a source of them.

`event_file` reads one file, `order_key` has the order; `object_reading` decides what is read and
published of an object, `stream` is the port of change streams.  Files, folders and buckets are
reached through `file_store` alone.
"""
