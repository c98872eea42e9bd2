"""The realm of these tests, and the options of its brokers and clients."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spark_kafka_sink.testing import Listener, LocalKafka
from spark_kafka_sink.testing.kafka_jars import tools_version
from spark_kafka_sink.testing.kafka_node import free_ports

KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
REALM = "KRBTEST.COM"
SESSION_MS = 3_000
SHORT_S = 4
"""Life of the tickets of the user ``short``."""


class Kdc:
    """MIT's KDC. ``users`` have keytabs.

    It knows the service ``kafka`` only by the canonical name of its host, to which Java resolves addresses, and
    ``stream`` by both.
    """

    users = ("orders", "short", "retired", "changed")
    services = ("kafka/localhost", "stream/127.0.0.1", "stream/localhost", "stranger/localhost")

    def __enter__(self) -> Self:
        from k5test import K5Realm

        self.realm: Any = K5Realm(
            realm=REALM,
            portbase=free_ports(1)[0],
            krb5_conf={"libdefaults": {"dns_canonicalize_hostname": "true"}},
            create_user=False,
            create_host=False,
            get_creds=False,
        )
        try:
            for principal in (*self.users, *self.services):
                self.realm.addprinc(principal)
                self.realm.extract_keytab(principal, self.keytab(principal))
            self.admin(f'modprinc -maxlife "{SHORT_S} seconds" short')
            self.admin("delprinc -force retired")
            self.admin("cpw -randkey changed")
            self.realm.addprinc("person", "secret")
        except BaseException:
            self.realm.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.realm.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        return Path(self.realm.tmpdir)

    @property
    def environment(self) -> dict[str, str]:
        return {name: self.realm.env[name] for name in ("KRB5_CONFIG", "KRB5_KDC_PROFILE")}

    def keytab(self, principal: str) -> str:
        return str(self.folder / f"{principal.replace('/', '-')}.keytab")

    def admin(self, query: str) -> None:
        self.realm.run(["/usr/sbin/kadmin.local", "-q", query])

    def kinit(self, cache: Path | str, *flags: str) -> None:
        """Tickets of the user ``person``."""
        self.realm.run(["/usr/bin/kinit", "-c", str(cache), *flags, "person"], input="secret\n")

    def restart(self, *flags: str) -> None:
        self.realm.stop_kdc()
        self.realm.start_kdc(list(flags))

    @property
    def process(self) -> Any:
        return self.realm._kdc_proc

    def tickets_given_to(self, user: str) -> int:
        """Logins of the user (AS requests), not tickets of services."""
        lines = (self.folder / "kdc.log").read_text().splitlines()
        return sum("AS_REQ" in line and "ISSUE" in line and f" {user}@{REALM}" in line for line in lines)


def kerberos_kafka(version: str, kdc: Kdc) -> LocalKafka:
    """Listeners: KRB; KRB_TLS; SESSIONS, whose sessions end; STREAM, of the service ``stream``."""
    of_service = dict.fromkeys(("KRB", "KRB_TLS", "SESSIONS"), "kafka/localhost") | {"STREAM": "stream/127.0.0.1"}
    properties = {"sasl.kerberos.service.name": "kafka"}
    for name, service in of_service.items():
        listener = f"listener.name.{name.lower()}."
        properties[f"{listener}sasl.enabled.mechanisms"] = "GSSAPI"
        properties[f"{listener}gssapi.sasl.jaas.config"] = keytab_login(kdc, service, "storeKey=true")
    properties["listener.name.sessions.gssapi.connections.max.reauth.ms"] = str(SESSION_MS)
    return LocalKafka(
        version=version,
        properties=properties,
        listeners={
            name: Listener("SASL_SSL" if "TLS" in name else "SASL_PLAINTEXT", mechanisms=("PLAIN",))
            for name in of_service
        },
        jvm_flags=[java_flag(kdc)],
    )


def java_flag(kdc: Kdc) -> str:
    return f"-Djava.security.krb5.conf={kdc.environment['KRB5_CONFIG']}"


def keytab_login(kdc: Kdc, principal: str, more: str = "") -> str:
    return f'{KRB5} useKeyTab=true keyTab="{kdc.keytab(principal)}" principal="{principal}@{REALM}" {more};'


def client_options(kafka: LocalKafka, jaas: str, listener: str = "KRB", **others: str) -> dict[str, str]:
    return {
        "bootstrap.servers": kafka.servers(listener), "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka", "sasl.jaas.config": jaas, **others,
    }  # fmt: skip


def java_command(kafka: LocalKafka, kdc: Kdc, main_class: str, *arguments: str) -> Sequence[str]:
    """A tool of Kafka's; the jars of the newest releases come without tools."""
    return [*kafka._java_command(tools_version(kafka.version), java_flag(kdc)), main_class, *arguments]
