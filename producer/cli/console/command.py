"""Runs the console until a signal: one thread reads the figures, a server shows them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

from tidegate.producer.cli.console.board import Board
from tidegate.producer.cli.console.change_search import find_changes
from tidegate.producer.cli.console.config import ConsoleConfig
from tidegate.producer.cli.console.pages import Pages
from tidegate.producer.cli.console.server import Application
from tidegate.producer.cli.dead_letters import dead_letters
from tidegate.producer.cli.fleet_reader import FleetRecords
from tidegate.producer.cli.status import StreamStatus, follow
from tidegate.producer.config import ProducerConfig
from tidegate.program.web_server import WebServer


def serve(
    settings: ProducerConfig,
    console: ConsoleConfig,
    *,
    stopping: threading.Event,
    show: Callable[[str], None],
) -> None:
    """Serve until `stopping` is set; `show` gets the address once it answers.

    Raises ConfigError for an address that cannot be listened on or read.
    """
    metrics = [place.strip() for place in console.worker_metrics.split(",") if place.strip()]

    def statuses(*, on_records: Callable[[FleetRecords], None]) -> Iterator[StreamStatus]:
        return follow(
            settings, metrics=metrics, interval_s=console.refresh_s, on_records=on_records
        )

    board = Board(console, statuses)
    pages = Pages(
        board,
        refresh_s=console.refresh_s,
        search=lambda table, key, hours: find_changes(
            settings, table, key, hours=hours, with_values=console.row_values
        ),
        parked=partial(dead_letters, settings),
    )
    application = Application(pages, token=console.token.get_secret_value())
    hint = "Choose another with --port, or 0 for a free one"
    with WebServer(application, console.host, console.port, settings="", hint=hint) as server:
        host = f"[{console.host}]" if ":" in console.host else console.host
        show(f"http://{host}:{server.port}/")
        looking = threading.Thread(target=board.run, args=(stopping,), name="board", daemon=True)
        looking.start()
        stopping.wait()
