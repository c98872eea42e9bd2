"""docs/first-errors.md quotes the sink's errors as the code words them."""

import pytest

from tests.recorded import FILES
from tests.repository.files import ROOT

PAGE = (ROOT / "docs/first-errors.md").read_text()
TEXTS = (FILES / "messages.txt").read_text()

QUOTED = (
    "is not an option of",
    "The driver could not check the connection to the brokers before the tasks (driverCheck)",
    "No broker could be reached",
    "could not be established",
    "is the broker running, are host and port right, is there a firewall in between?",
    "To try each step from this machine",
    "No task was started, because the driver could not log in to the brokers",
    "refused the login with",
    "username and password in sasl.jaas.config",
    "not present in metadata after",
    "and did not create it (their auto.create.topics.enable)",
    "With topicCreation=create, the sink creates missing topics.",
    "topicCreation=never: no such topic",
    "Create it, or set topicCreation=create.",
    "Required attribute 'value' not found",
    "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.",
    "attribute unsupported type",
    "bytes when serialized which is larger than",
)


@pytest.mark.parametrize("text", QUOTED)
def test_a_quoted_error_is_worded_as_in_the_code(text):
    assert text in PAGE
    assert text in TEXTS, "the error is worded in another way now: change the page and this list"
