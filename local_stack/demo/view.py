"""The display of a long run: live on a terminal, a line every five seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

_PLAIN_EVERY_S = 5.0


@dataclass(slots=True)
class RunView:
    """Shows the current stage and a few figures; may be called from several threads."""

    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))
    began: float = field(default_factory=time.monotonic)
    _stage: str = ""
    _figures: dict[str, str] = field(default_factory=dict)
    _live: Live | None = None
    _plain_at: float = 0.0

    def __enter__(self) -> Self:
        """Begin to draw, on a terminal."""
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self._draw,
                console=self.console,
                refresh_per_second=8,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End drawing; printed lines stay."""
        if self._live:
            self._live.stop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Draw nothing within the block, which writes to standard output on the same terminal."""
        if self._live:
            self._live.stop()
        try:
            yield
        finally:
            if self._live:
                self._live.start()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began

    def stage(self, text: str) -> None:
        """Show the stage that begins now."""
        if text != self._stage:
            self._stage = text
            if not self._live:
                self._print(text)

    def detail(self, text: str) -> None:
        """Show a step within a stage; outside a terminal at most every five seconds."""
        self._stage = text
        if not self._live and self.seconds - self._plain_at >= _PLAIN_EVERY_S:
            self._plain_at = self.seconds
            self._print(text)

    def event(self, text: str) -> None:
        """Print a line that stays."""
        self._print(text)

    def figures(self, **figures: object) -> None:
        """Show the newest figures, in the order in which they were first given."""
        self._figures |= {name: str(value) for name, value in figures.items()}
        if not self._live and self.seconds - self._plain_at >= _PLAIN_EVERY_S:
            self._plain_at = self.seconds
            self._print(", ".join(f"{_words(n)} {v}" for n, v in self._figures.items()))

    def _print(self, text: str) -> None:
        line = Text.assemble((f"{self.seconds:6.1f} s  ", "dim"), text)
        self.console.print(line, soft_wrap=True)

    def _draw(self) -> RenderableType:
        head = Spinner("dots", Text(f" {self.seconds:5.0f} s  {self._stage}"))
        if not self._figures:
            return head
        table = Table.grid(padding=(0, 3))
        figures = dict(self._figures)
        table.add_row(*(Text(_words(name), style="dim") for name in figures))
        table.add_row(*figures.values())
        return Group(head, table)


def _words(name: str) -> str:
    return name.replace("_", " ")
