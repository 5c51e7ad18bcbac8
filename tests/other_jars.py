"""Jars that only some deep tests need, fetched once for each machine: versions, login handlers."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import cache_dir, only_one, retrieve

_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_DONE = "complete"


def fetched(*coordinates: str, left_out: tuple[str, ...] = (), archive: str = "") -> Path:
    """Return a folder with Maven artifacts and what they need, less the modules in `left_out`.

    `archive` is the type of a single artifact with the classifier `all`, which is all that is
    fetched then.
    """
    text = _module(coordinates, left_out, archive).encode()
    folder = cache_dir() / "jvm" / f"other-{hashlib.sha256(text).hexdigest()[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with only_one(folder.with_suffix(".lock"), report=lambda _: None):
        if not (folder / _DONE).exists():
            folder.mkdir(exist_ok=True)
            retrieve(
                find_java(),
                text,
                pattern=_PATTERN,
                work=folder,
                cache=folder.with_suffix(".ivy"),
                what=", ".join(coordinates),
                report=lambda _: None,
            )
            (folder / _DONE).touch()
    return folder


def _module(coordinates: tuple[str, ...], left_out: tuple[str, ...], archive: str) -> str:
    excluded = "".join(
        '<exclude org="{}" module="{}"/>'.format(*module.split(":")) for module in left_out
    )
    found = []
    for group, name, version in (coordinate.split(":") for coordinate in coordinates):
        artifact = f'<artifact name="{name}" type="{archive}" ext="{archive}" m:classifier="all"/>'
        found.append(
            f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->default"'
            f' transitive="{"false" if archive else "true"}">'
            f"{artifact if archive else ''}{excluded}</dependency>"
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tidegate" module="others"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(found)}</dependencies></ivy-module>"
    )
