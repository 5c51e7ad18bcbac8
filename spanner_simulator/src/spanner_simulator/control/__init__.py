"""Control over a running simulator: verbs for tests and demos, separate from the clients' API.

Each verb is declared once, as a method of `Verbs`; Python calls it directly, and HTTP by its name.
"""

from spanner_simulator.control.http_server import start_control_server
from spanner_simulator.control.verbs import Verbs

__all__ = ["Verbs", "start_control_server"]
