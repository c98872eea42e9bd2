"""TLS without I/O: bytes in, bytes out. Connections, sockets and threads are those of ``network/``."""
