"""What delta-rs asks of Google Cloud Storage (the XML API), in the words that the server knows.

The server decides; here only the form of a request changes, and that of its answer.
"""

from __future__ import annotations

import json
from urllib.parse import parse_qs, unquote, urlencode, urlsplit
from xml.etree import ElementTree

_APIS = ("storage", "upload", "download", "batch", "_internal")


def to_server(command, path, headers):
    """Return method and path of a request as the server takes them."""
    bucket, _, name = urlsplit(path).path.lstrip("/").partition("/")
    if command != "PUT" or not name or bucket in _APIS:
        return command, path
    bucket, query = unquote(bucket), {"uploadType": "media", "name": unquote(name)}
    if (generation := headers.get("x-goog-if-generation-match")) is not None:
        query["ifGenerationMatch"] = generation
    return "POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}"


def from_server(command, path, status, headers, data):
    """Return headers and data of an answer as delta-rs expects them."""
    address = urlsplit(path)
    bucket, _, name = address.path.lstrip("/").partition("/")
    if bucket in _APIS or status != 200:
        return headers, data
    if command == "PUT" and name:
        return [*headers, ("ETag", json.loads(data)["etag"])], b""
    start = parse_qs(address.query).get("start-after", [""])[0]
    if command == "GET" and not name and start:
        return headers, _after(data, start)
    return headers, data


def _after(data, start):
    """Leave out of a list what is not after a name."""
    listed = ElementTree.fromstring(data)
    for one in listed.findall("{*}Contents"):
        if one.findtext("{*}Key") <= start:
            listed.remove(one)
    return ElementTree.tostring(listed)
