"""Files of Google Datastream as the source of a stream, behind the port of change streams.

`object_reading` decides what is read and returned, `object_query` reads; `stream` is the port.
"""
