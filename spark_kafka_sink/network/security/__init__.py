"""TLS and SASL without network I/O: bytes in, bytes out. No sockets, no threads; connections are ``network/``'s."""
