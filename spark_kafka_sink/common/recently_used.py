"""The bound of a cache in a process that lives as long as its application."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def remember(cache: dict[K, V], key: K, value: V, most: int) -> V:
    """Notes a use: the entry becomes the last one. If there are more than ``most`` entries, the least recently used
    ones are forgotten. Any thread. For example, with ``most`` 2 and the entries a, b, a use of a and a new c forget b.
    """
    cache.pop(key, None)
    cache[key] = value
    for unused in list(cache)[:-most]:
        cache.pop(unused, None)
    return value
