"""Connections to brokers: sockets at the bottom, the cluster's metadata at the top.

- ``selector``, the only sockets · ``name_lookup``
- ``messages``, ``connection``, ``handshake``: Kafka's protocol, without I/O and without a clock
- ``client``: connections, retries, requests in flight (sender thread only) · ``error_table``: code × API → action
- ``metadata``, ``calls``: callers wait while a loop sends, the sender's loop or the caller's own (``rpc``)
"""
