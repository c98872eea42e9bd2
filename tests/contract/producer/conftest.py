"""The broker of most tests here: with topic t, of one partition."""

from tests.contract.brokers import broker_with

broker = broker_with("t")
