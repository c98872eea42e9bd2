"""GSSAPI: which options of ``Krb5LoginModule`` log in, and the service name; no error shows the module's values."""

import pytest

from spark_kafka_sink.network.login.kerberos import KRB5_EXAMPLE
from tests.support.options import fault, parse

KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
KEYTAB = f'{KRB5} required useKeyTab=true storeKey=true keyTab="/etc/orders.keytab" principal="orders@EXAMPLE.COM";'
TICKETS = f"{KRB5} required useTicketCache=true doNotPrompt=true;"
SERVICE = "sasl.kerberos.service.name"


def gssapi(jaas, **others):
    return {
        "bootstrap.servers": "broker:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI",
        "sasl.jaas.config": jaas, SERVICE: "kafka", **others,
    }  # fmt: skip


@pytest.mark.parametrize("jaas", [KEYTAB, TICKETS, KEYTAB.replace("storeKey", "useTicketCache")])
def test_a_keytab_or_a_ticket_cache_is_accepted(jaas):
    config = parse(gssapi(jaas))
    assert (config.sasl_mechanism, config.sasl_kerberos_service_name) == ("GSSAPI", "kafka")


def test_gssapi_is_the_default_mechanism_as_in_java():
    options = gssapi(KEYTAB)
    del options["sasl.mechanism"]
    assert parse(options).sasl_mechanism == "GSSAPI"


def test_the_service_name_may_stand_in_the_login_module():
    assert parse(gssapi(f'{KEYTAB[:-1]} serviceName="kafka";', **{SERVICE: None})).sasl_kerberos_service_name is None
    assert parse(gssapi(f'{KEYTAB[:-1]} serviceName="kafka";')).sasl_kerberos_service_name == "kafka"


@pytest.mark.parametrize(
    ("jaas", "reason"),
    [
        (None, f"is required with GSSAPI: {KRB5_EXAMPLE}"),
        (f"{KRB5} "
         "required;", f"has neither a keytab nor a ticket cache; write {KRB5_EXAMPLE} or, to use the tickets of "
         f"kinit, {KRB5} required useTicketCache=true;"),
        (f"{KRB5} required useKeyTab=true;", "has useKeyTab=true, but no keyTab and no principal; write "
         f"{KRB5_EXAMPLE}"),
        (f'{KRB5} required useKeyTab=true keyTab="/secret";', "has useKeyTab=true, but no principal; write "
         f"{KRB5_EXAMPLE}"),
        (f"{TICKETS[:-1]} isInitiator=false;", "has isInitiator=false, which is for brokers; leave it out"),
        ('com.ibm.security.auth.module.Krb5LoginModule required useKeytab="file:///secret" credsType=both;',
         "has com.ibm.security.auth.module.Krb5LoginModule, which does not log in with GSSAPI; write "
         f"{KRB5_EXAMPLE}"),
    ],
)  # fmt: skip
def test_a_login_module_that_cannot_log_in_is_refused_with_what_to_write(jaas, reason):
    assert fault(gssapi(jaas)) == f"sasl.jaas.config {reason}"


def test_the_service_name_is_required_and_two_must_agree():
    assert fault(gssapi(KEYTAB, **{SERVICE: None})) == (
        f"{SERVICE} is required with GSSAPI: the first part of the brokers' principals, most often kafka."
    )
    assert fault(gssapi(f"{KEYTAB[:-1]} serviceName=other;")) == (
        f"{SERVICE} is not the serviceName in sasl.jaas.config; leave one of them out."
    )
