"""Files that Google Datastream writes to Cloud Storage: listing, reading, order.

`event_file` reads one file, `file_tree` lists the files of a location, `order_key` has the order.
Files, folders and buckets are reached through `file_store` alone; all else is pure.
"""
