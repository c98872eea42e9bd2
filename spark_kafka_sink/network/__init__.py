"""Connections to brokers: sockets at the bottom, the cluster's metadata at the top.

- ``selector``, the only sockets, behind the protocol of ``transport`` · ``name_lookup``
- ``messages``, ``connection``, ``handshake``: Kafka's protocol, without I/O and without a clock
- ``client``: connections, retries, requests in flight (sender thread only) · ``error_table``: code × API → action
- ``metadata``: callers wait for a topic, the sender fetches updates · ``rpc``: requests on the caller's own thread
"""
