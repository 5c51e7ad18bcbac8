"""Control over a running simulator: verbs for tests and demos, beside the API that clients see.

Each verb is declared once, as a method of `Verbs`; Python calls it, and HTTP finds it there.
"""

from spanner_simulator.control.http_server import start_control_server
from spanner_simulator.control.verbs import Verbs

__all__ = ["Verbs", "start_control_server"]
