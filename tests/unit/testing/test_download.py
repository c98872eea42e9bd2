"""What is shown while Kafka or a registry is fetched for its first start."""

import io
import sys

import pytest

from spark_kafka_sink.testing.download import DownloadShown, Fetched

LOOKING_UP, FETCHING = Fetched("", 0, 23, 0), Fetched("kafka-clients-4.4.0.jar", 3, 45, 20_100_000)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(*told):
    with DownloadShown(45) as download:
        for each in told:
            download(each)


def test_without_a_terminal_it_is_a_line_at_the_end(capsys):
    shown(LOOKING_UP, FETCHING, FETCHING)
    assert capsys.readouterr().err == "Fetched 3 files, 20.1 MB\n"


@pytest.mark.parametrize("rich", [True, False])
def test_a_terminal_shows_file_and_size(monkeypatch, rich):
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with DownloadShown(45) as download:
        for each in (LOOKING_UP, FETCHING):
            download(each)
            if download._bar is not None:
                download._bar.refresh()
    text = sys.stderr.getvalue()
    assert ("looking up the files, 23 so far" in text) == rich
    assert ("20.1/45.0 MB" in text) == rich
    assert ("kafka-clients-4.4.0.jar, file 3 of 45" in text) == rich
    assert "Fetched 3 files, 20.1 MB" in text


def test_a_download_that_fails_does_not_say_that_it_has_ended(capsys):
    download = DownloadShown(45)
    download(FETCHING)
    download.__exit__(OSError, OSError(), None)
    assert "Fetched" not in capsys.readouterr().err
