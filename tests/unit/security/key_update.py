"""A TLS 1.3 server that updates its keys (RFC 8446, 4.6.3), which Python's ``ssl`` cannot be asked to do."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.unit.security.conftest import Certificates, Pair

_APPLICATION_DATA, _HANDSHAKE = 23, 22
_KEY_UPDATE_REQUESTED = bytes([24, 0, 0, 1, 1])


class KeyUpdatingServer:
    """Goes on with the server's traffic secret after the handshake; the server object reads, but writes no more."""

    def __init__(self, certificates: Certificates, key_log: Path) -> None:
        client, server = certificates.client_context(), certificates.server_context()
        client.minimum_version = ssl.TLSVersion.TLSv1_3
        client.keylog_filename = str(key_log)
        server.num_tickets = 0
        self.pair = Pair(client, server).connect()
        assert self.pair.server.tls.cipher()[0] == "TLS_AES_256_GCM_SHA384"
        lines = (line.split() for line in key_log.read_text().splitlines())
        self._secret = next(bytes.fromhex(parts[2]) for parts in lines if parts[0] == "SERVER_TRAFFIC_SECRET_0")
        self._sequence = 0

    def key_update(self) -> bytes:
        """The record that announces a new key and asks the client for a new one of its own."""
        record = self._record(_KEY_UPDATE_REQUESTED, _HANDSHAKE)
        self._secret, self._sequence = self._derived("traffic upd", 48), 0
        return record

    def encrypt(self, data: bytes) -> bytes:
        return self._record(data, _APPLICATION_DATA)

    def _record(self, content: bytes, content_type: int) -> bytes:
        key, iv = self._derived("key", 32), self._derived("iv", 12)
        nonce = bytes(a ^ b for a, b in zip(iv, self._sequence.to_bytes(12, "big"), strict=True))
        header = bytes([_APPLICATION_DATA, 3, 3]) + (len(content) + 1 + 16).to_bytes(2, "big")
        self._sequence += 1
        return header + AESGCM(key).encrypt(nonce, content + bytes([content_type]), header)

    def _derived(self, label: str, length: int) -> bytes:
        name = b"tls13 " + label.encode()
        info = length.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        return HKDFExpand(SHA384(), length, info).derive(self._secret)
