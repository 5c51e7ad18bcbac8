"""Files that Google Datastream or Tidegate writes: their events, their order, and a source of them.

`event_file` reads one file, `event_order` orders events; `object_reading` decides what is read and
published of an object, `stream` is the port of change streams.  Only `file_store` accesses files,
folders and buckets.
"""
