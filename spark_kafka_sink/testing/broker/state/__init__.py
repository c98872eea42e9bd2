"""The broker's state: plain objects, no sockets, no threads, no clock. Only the broker's own thread may touch them."""
