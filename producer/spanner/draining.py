"""An HTTP/2 connection that goes on with the streams that a GOAWAY lets finish."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.events import Event


class DrainingConnection(H2Connection):
    """As `H2Connection`; after a GOAWAY streams may still send and receive.

    `h2` takes a GOAWAY for the end of the connection.  Servers send it to replace a connection that
    is old, and finish what it carries: every query of a worker would break with its connection.
    """

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self.state_machine = _DrainingStateMachine()

    def clear_outbound_data_buffer(self) -> None:
        """Keep what is to be sent, which `h2` drops at a GOAWAY."""


class _DrainingStateMachine(H2ConnectionStateMachine):
    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        if input_ is ConnectionInputs.RECV_GOAWAY:
            return []
        return super().process_input(input_)
