"""TLS and SASL without I/O: bytes in, bytes out. No sockets, no threads; connections are ``network/``'s."""
