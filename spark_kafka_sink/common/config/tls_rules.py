"""Rules over the ``ssl.*`` options, as far as they need no file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.common.config.draft import Draft
from spark_kafka_sink.common.config.operator_limits import file_fault

NARROWS_TLS_1_3 = sys.version_info >= (3, 15)  # SSLContext.set_ciphersuites
VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_OLDER: Final = ("TLSv1", "TLSv1.1")
"""Configurations still name these versions, which Java disabled in 2021 (``jdk.tls.disabledAlgorithms``)."""

_PEM: Final = "-BEGIN "
STORES: Final = (
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.key", "ssl.keystore.certificate.chain",
)  # fmt: skip

_NO_CIPHER: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""Listed by Java, but not a cipher suite: it says that the client renegotiates securely."""

TLS_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""OpenSSL has the same names. It allows all three, unless ``SSLContext.set_ciphersuites`` narrows them."""

TLS_1_2: Final[Mapping[str, str]] = MappingProxyType({
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384": "DHE-DSS-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256": "DHE-DSS-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA256": "DHE-DSS-AES256-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA256": "DHE-DSS-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA": "DHE-DSS-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA": "DHE-DSS-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
})  # fmt: skip
"""Java's names of the cipher suites that a current JVM negotiates, and OpenSSL's."""


def tls_stores(draft: Draft) -> None:
    """A store is one file, or inline PEM (Java: ``createKeystore`` and ``createTruststore``)."""
    values = draft.values
    for name in STORES:
        values[name] = values[name] or None
    for store, inline in (("truststore", "ssl.truststore.certificates"), ("keystore", "ssl.keystore.key")):
        location, password = f"ssl.{store}.location", f"ssl.{store}.password"
        if _PEM in (values[location] or ""):  # not shown: it may be a private key
            draft.fault(location, f"must be the path of a file, but is PEM; set that as {draft.prefix}{inline}.")
        elif values[location] is not None and (fault := file_fault(values[location])) is not None:
            draft.forbid(location, fault)
        elif values[location] is not None and values[inline] is not None:
            draft.fault(inline, f"and {draft.prefix}{location} are both given; leave one of them out.")
        elif values[location] is None and values[password] is not None:
            draft.fault(password, f"is given without {draft.prefix}{location}, whose password it is.")
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    if (values[key] is None) != (values[chain] is None):
        given, missing = (key, chain) if values[chain] is None else (chain, key)
        draft.fault(given, f"needs {draft.prefix}{missing}: the private key and its certificates come together.")


def tls_without_effect(draft: Draft) -> None:
    """Warns about ``ssl.*`` options if ``security.protocol`` asks for no TLS, as its default."""
    protocol = draft.values["security.protocol"]
    given = [name for name in draft.given if name.startswith("ssl.")]
    if given and protocol not in ("SSL", "SASL_SSL"):
        draft.warn(
            min(given), f"has no effect, as {draft.prefix}security.protocol is {protocol}; TLS needs SSL or SASL_SSL."
        )


def tls_versions(draft: Draft) -> None:
    """Puts ``ssl.enabled.protocols`` in order, without versions that ``ssl.protocol`` excludes; empty means all.

    Older versions are ignored in a list without gaps that has TLSv1.2.
    """
    values, name = draft.values, "ssl.enabled.protocols"
    spelt = {version.lower(): version for version in (*_OLDER, *VERSIONS)}
    given = [spelt.get(version.lower(), version) for version in values[name]]
    ignored = _OLDER if "TLSv1.1" in given and "TLSv1.2" in given else ()
    for version in given:
        if version not in VERSIONS and version not in ignored:
            draft.fault(name, f"has {version!r}; TLSv1.2 and TLSv1.3 are the versions in use, leave the others out.")
    if older := [version for version in ignored if version in given]:
        draft.warn(name, f"has {', '.join(older)}, ignored: neither OpenSSL nor Java allows them by default.")
    enabled = [version for version in VERSIONS if version in given] or list(VERSIONS)
    if values["ssl.protocol"] == "TLSv1.2":
        if enabled == ["TLSv1.3"]:
            draft.fault("ssl.protocol", f"is TLSv1.2, but {draft.prefix}{name} allows only TLSv1.3; leave one out.")
        enabled = ["TLSv1.2"]
    values[name] = tuple(enabled)


def tls_cipher_suites(draft: Draft) -> None:
    """Cipher suites have Java's names. A TLS version without one of them leaves ``ssl.enabled.protocols``."""
    values, name = draft.values, "ssl.cipher.suites"
    values[name] = suites = tuple(dict.fromkeys(each for each in values[name] if each and each != _NO_CIPHER))
    for suite in suites:
        if suite not in TLS_1_2 and suite not in TLS_1_3:
            draft.fault(name, f"has {suite!r}, which is not a cipher suite of TLSv1.2 or TLSv1.3; leave it out.")
    if not suites or name in draft.faulty:
        return
    of_version = {"TLSv1.2": TLS_1_2, "TLSv1.3": TLS_1_3}
    enabled = values["ssl.enabled.protocols"]
    usable = tuple(version for version in enabled if any(suite in of_version[version] for suite in suites))
    if not usable:
        draft.fault(
            name, f"has no cipher suite of {', '.join(enabled)}, which {draft.prefix}ssl.enabled.protocols allows."
        )
    values["ssl.enabled.protocols"] = usable
    missing = [suite for suite in TLS_1_3 if suite not in suites]
    if "TLSv1.3" in usable and missing and not NARROWS_TLS_1_3:
        draft.fault(
            name,
            f"leaves out {', '.join(missing)}, which Python before 3.15 cannot; name all three of TLSv1.3, or none of "
            "them to use TLSv1.2.",
        )
