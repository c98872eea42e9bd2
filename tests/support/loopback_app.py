"""A Flask application on loopback, served by a thread of its own."""

from __future__ import annotations

import threading
from typing import Self

from werkzeug.serving import BaseWSGIServer


class LoopbackApp:
    """Serves ``_server`` within a ``with`` block."""

    _server: BaseWSGIServer

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def let_go(self) -> None:
        """Ends requests that hang."""
        raise NotImplementedError
