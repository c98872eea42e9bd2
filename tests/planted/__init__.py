"""Faults that are planted into the package one by one: the tests must find each of them."""
