"""No secret is left behind by writes that succeed and writes that fail: all they leave is searched."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.listener import login as listener_login
from tests.support.child_processes import PYTHON_PATH

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
_DEADLINE_S = 540
USER, TOPIC, RECEIPTS, LEDGER = "client", "t", "receipts", "__pykafka_ledger"
VARIABLE = "KAFKA_PASSWORD"
NOTHING = "zq-no-option-has-this-name"
# In every Python process: all of the package's log lines, and what would be gone at once, temporary files.
SITE = """
import logging, os, shutil, sys
handler = logging.StreamHandler(sys.stderr)
logging.getLogger("spark_kafka_sink").addHandler(handler)
logging.getLogger("spark_kafka_sink").setLevel("DEBUG")
unlink, kept = os.unlink, os.environ["KEPT"]
def keeping(path, *rest, **named):
    if os.path.isfile(path) and str(path).startswith(os.environ["TMPDIR"]):
        shutil.copy(path, kept)
    unlink(path, *rest, **named)
os.unlink = keeping
"""


def unlikely() -> str:
    """A secret without a word by which Spark would find it."""
    return f"zq{secrets.token_hex(12)}"


class Secrets:
    """Recognisable values of every secret option, and the files that they open."""

    def __init__(self, folder: Path) -> None:
        self.login, self.store, self.key, self.wrong = unlikely(), unlikely(), unlikely(), unlikely()
        self.key_lines: list[str] = []
        self._folder = folder

    def all(self) -> list[str]:
        return [self.login, self.store, self.key, self.wrong, *self.key_lines]

    def writes(self, broker: TestBroker) -> dict[str, dict[str, str]]:
        """Options of writes by name: those of ``good-…`` succeed."""
        inline = broker.spark_options("S", USER) | {"topic": TOPIC}
        key = load_pem_private_key(inline["kafka.ssl.keystore.key"].encode(), None)
        sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(self.key.encode()))
        plain = inline["kafka.ssl.keystore.key"]
        self.key_lines = [*lines(plain), *lines(sealed.decode())]
        of_files = {name: value for name, value in inline.items() if not name.startswith("kafka.ssl.")}
        chain = x509.load_pem_x509_certificates(inline["kafka.ssl.keystore.certificate.chain"].encode())
        trusted = x509.load_pem_x509_certificates(inline["kafka.ssl.truststore.certificates"].encode())
        password = BestAvailableEncryption(self.store.encode())
        of_files |= {
            "kafka.ssl.keystore.location": self._stored(
                "key.p12", pkcs12.serialize_key_and_certificates(b"k", key, chain[0], chain[1:], password)
            ),
            "kafka.ssl.truststore.location": self._stored(
                "trust.p12", pkcs12.serialize_key_and_certificates(None, None, None, trusted, password)
            ),
            "kafka.ssl.keystore.password": self.store,
            "kafka.ssl.truststore.password": self.store,
            "kafka.ssl.key.password": self.key,
        }
        with_password = {"kafka.ssl.keystore.key": sealed.decode(), "kafka.ssl.key.password": self.key}
        login = inline["kafka.sasl.jaas.config"]
        plain_login = "org.apache.kafka.common.security.plain.PlainLoginModule required username="
        return {
            "good-files": of_files,
            "good-inline": inline | with_password,
            "good-plain": inline | {"kafka.sasl.mechanism": "PLAIN", "kafka.ssl.keystore.key": plain},
            "refused login": inline | {"kafka.sasl.jaas.config": login.replace(self.login, self.wrong)},
            "refused certificate": {k: v for k, v in inline.items() if not k.startswith("kafka.ssl.truststore")},
            "wrong store password": of_files | {"kafka.ssl.keystore.password": self.wrong},
            "wrong truststore password": of_files | {"kafka.ssl.truststore.password": self.wrong},
            "wrong key password": inline | with_password | {"kafka.ssl.key.password": self.wrong},
            "cut key": inline | {"kafka.ssl.keystore.key": plain[:-40]},
            "key as location": {
                **{k: v for k, v in inline.items() if not k.startswith("kafka.ssl.keystore")},
                "kafka.ssl.keystore.location": plain,
            },
            "unquoted login": inline | {"kafka.sasl.jaas.config": f"{plain_login}{USER} password={self.login}#1;"},
            "login without a module": inline | {"kafka.sasl.jaas.config": f"{USER}:{self.login}"},
            "unknown option": inline | {"kafka.sasl.jaas.confg": login},
            "wrong option": inline | {"kafka.linger.ms": "soon"},
        }

    def placeholders(self, broker: TestBroker) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        """Writes that succeed, whose secrets are in files and in an environment variable; the variable."""
        inline = broker.spark_options("S", USER) | {"topic": TOPIC}
        self.key_lines = lines(inline["kafka.ssl.keystore.key"])
        (self._folder / "kafka.properties").write_text(f"password={self.login}\n")
        (self._folder / "key.pem").write_text(inline["kafka.ssl.keystore.key"])
        of_file = f"${{file:{self._folder}/kafka.properties:password}}"
        key = {"kafka.ssl.keystore.key": f"${{dir:{self._folder}:key.pem}}"}
        writes = {
            name: inline | key | {"kafka.sasl.jaas.config": listener_login("SCRAM-SHA-512", USER, placeholder)}
            for name, placeholder in {"good-file": of_file, "good-env": f"${{env:{VARIABLE}}}"}.items()
        }
        return writes, {VARIABLE: self.login}

    def _stored(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.write_bytes(content)
        return str(path)


def lines(pem: str) -> list[str]:
    """The lines of a key that no other key has."""
    return [line for line in pem.splitlines() if len(line) == 64 and "-----" not in line][1:]


def documented_settings() -> list[str]:
    """``spark.redaction.regex`` and ``spark.sql.redaction.string.regex`` as the documentation has them."""
    found = re.findall(r"^(spark\.\S*redaction\S*) +(\S.*)$", (ROOT / "docs/security.md").read_text(), re.MULTILINE)
    assert [name for name, _ in found] == ["spark.redaction.regex", "spark.sql.redaction.string.regex"]
    return [f"{name}={value}" for name, value in found]


def left_behind(
    master: str, tmp_path: Path, broker: TestBroker, writes: Mapping[str, object], settings: Sequence[str], **more: str
) -> tuple[Path, str]:
    """The folder with all that the writes leave, and their output, which is in it too. ``more``: environment."""
    left = tmp_path / "left"
    for folder in (left, left / "tmp", left / "kept", left / "events", left / "logs", tmp_path / "site"):
        folder.mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    settings = [
        "spark.eventLog.enabled=true", "spark.eventLog.compress=false", f"spark.eventLog.dir={left / 'events'}",
        f"spark.local.dir={left / 'local'}", f"spark.sql.warehouse.dir={left / 'warehouse'}", "spark.ui.port=0",
        "spark.ui.showConsoleProgress=false",
        "spark.sql.shuffle.partitions=2", "spark.log.level=INFO", *settings,
    ]  # fmt: skip
    paths = {"TMPDIR": left / "tmp", "KEPT": left / "kept", "SPARK_LOG_DIR": left / "logs"}
    environment = {**os.environ, **{name: str(path) for name, path in paths.items()}, **more}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), PYTHON_PATH])
    with (left / "output").open("wb") as output:
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests/spark/secrets_job.py"), master, str(left), *settings],
            input=json.dumps(writes).encode(),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=left,
            env=environment,
            timeout=_DEADLINE_S,
            check=False,
        )
    for topic in (TOPIC, RECEIPTS, LEDGER):
        (left / f"topic {topic}").write_text(repr(list(broker.topic(topic).records())))
    text = (left / "output").read_text(errors="replace")
    assert done.returncode == 0, text[-10_000:]
    assert "committed exactly once" in text
    return left, text


@pytest.fixture
def hidden(tmp_path: Path) -> Secrets:
    (tmp_path / "stores").mkdir()
    return Secrets(tmp_path / "stores")


@pytest.fixture
def broker(hidden: Secrets) -> Iterator[TestBroker]:
    listener = Listener("SASL_SSL", client_auth="required", users={USER: hidden.login})
    with TestBroker(listeners={"S": listener}) as broker:
        broker.create_topic(TOPIC)
        yield broker


@pytest.mark.timeout(_DEADLINE_S + 60)
@pytest.mark.parametrize("master", ["local[2,1]", "connect"])
def test_no_secret_is_in_anything_that_writes_leave_behind(
    broker: TestBroker, hidden: Secrets, master: str, tmp_path: Path
) -> None:
    writes = hidden.writes(broker)
    left, text = left_behind(master, tmp_path, broker, writes, documented_settings())
    assert re.findall("FAILED: (.*)$", text, re.MULTILINE) == [name for name in writes if "good" not in name]
    assert list((left / "kept").iterdir()), "the private key's temporary file was not seen"
    assert traces(left, [USER.encode(), TOPIC.encode()]) != []
    assert traces(left, [secret.encode() for secret in hidden.all()]) == []


@pytest.mark.timeout(_DEADLINE_S + 60)
@pytest.mark.parametrize("master", ["local[2,1]", "connect"])
def test_placeholders_stand_for_secrets_where_spark_hides_nothing(
    broker: TestBroker, hidden: Secrets, master: str, tmp_path: Path
) -> None:
    writes, variable = hidden.placeholders(broker)
    left, text = left_behind(master, tmp_path, broker, writes, [f"spark.redaction.regex={NOTHING}"], **variable)
    assert re.findall("DONE: (.*)$", text, re.MULTILINE) == [*writes, "batch", "stream"]
    assert traces(left, [USER.encode(), TOPIC.encode()]) != []
    # Only Spark Connect puts the options of a write into the event log.
    assert (traces(left / "events", [b"${file:", b"${dir:"]) != []) is (master == "connect")
    assert traces(left, [secret.encode() for secret in (hidden.login, *hidden.key_lines)]) == []


def traces(folder: Path, sought: list[bytes]) -> list[str]:
    """Where a secret stands: files, with the text around it."""
    found = []
    for path in (Path(at, name) for at, _, names in os.walk(folder) for name in names):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue  # Spark Connect's server is still removing its temporary files
        places = [at for each in sought if (at := content.find(each)) >= 0]
        found += [f"{path.relative_to(folder)}: {content[max(at - 200, 0) : at + 60]!r}" for at in places]
    return found


def test_the_search_finds_a_secret(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a password: zq1")
    assert traces(tmp_path, [b"zq1"]) == ["log: b'a password: zq1'"]
