"""One broker connection each, many brokers: sockets at the bottom, the cluster's metadata at the top.

- ``transport``: what is needed of sockets · ``selector``: the only sockets
- ``frames``, ``codec``, ``handshake``, ``connection``: the protocol, without I/O and without a clock
- ``node_state``, ``client``: which connections exist, when they are tried again, what is in flight (sender thread only)
- ``metadata``: what is known of the cluster; where callers wait and the sender updates · ``metadata_messages``,
  ``metadata_updater``: how it is asked for
"""
