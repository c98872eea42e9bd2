"""A SCRAM server in memory (RFC 5802), written from the RFC: the referee of the client."""

import base64
import hashlib
import hmac
import re
from functools import cache


class Refused(Exception):  # noqa: N818
    """The client's proof is wrong."""


def serve(algorithm, users, *, salt=b"salt of the server", iterations=4096, nonce="server"):
    """A generator: gets client messages, yields the server's. ``users``: name → password."""
    message = yield b""
    first = re.fullmatch(r"n,,(n=([^,]*),r=([^,]+)(,.*)?)", message.decode())
    bare, name, client_nonce = first[1], first[2].replace("=2C", ",").replace("=3D", "="), first[3]
    assert "=" not in re.sub("=2C|=3D", "", first[2])
    server_first = f"r={client_nonce}{nonce},s={base64.b64encode(salt).decode()},i={iterations}"
    message = yield server_first.encode()
    final = re.fullmatch(r"(c=biws,r=([^,]+)),p=([^,]+)", message.decode())
    assert final[2] == client_nonce + nonce
    salted = _hi(algorithm, users[name].encode(), salt, iterations)
    client_key = hmac.new(salted, b"Client Key", algorithm).digest()
    stored = hashlib.new(algorithm, client_key).digest()
    auth = f"{bare},{server_first},{final[1]}".encode()
    signature = hmac.new(stored, auth, algorithm).digest()
    shown = bytes(a ^ b for a, b in zip(base64.b64decode(final[3]), signature, strict=True))
    if hashlib.new(algorithm, shown).digest() != stored:
        raise Refused
    server_key = hmac.new(salted, b"Server Key", algorithm).digest()
    yield b"v=" + base64.b64encode(hmac.new(server_key, auth, algorithm).digest())


@cache
def _hi(algorithm, password, salt, iterations):
    """RFC 5802, 2.2, in its own words."""
    block = hmac.new(password, salt + (1).to_bytes(4, "big"), algorithm).digest()
    result = int.from_bytes(block, "big")
    for _ in range(iterations - 1):
        block = hmac.new(password, block, algorithm).digest()
        result ^= int.from_bytes(block, "big")
    return result.to_bytes(len(block), "big")
