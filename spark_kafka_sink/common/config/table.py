"""Every option of Kafka's producer (``ProducerConfig`` 4.x).

The code looks options up here, and the documentation is generated from here. Defaults stand nowhere else.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from spark_kafka_sink.common.compression import CODECS
from spark_kafka_sink.common.config.option import (
    AT_LEAST_0,
    AT_LEAST_1,
    MINUS_1_OR_MORE,
    Matching,
    OneOf,
    Option,
    OptionKind,
    Range,
    Status,
)

BOOLEAN, INT, LONG, SHORT, DOUBLE, STRING, LIST, CLASS, PASSWORD = OptionKind
NO_EFFECT, NOT_YET, JVM_ONLY = Status.NO_EFFECT, Status.NOT_YET, Status.JVM_ONLY

SMALLEST_RECORD = 85
"""Bytes that Java estimates for a record without key, value and headers. A lower limit would refuse every record."""

_STORE_TYPES = OneOf(("JKS", "PKCS12", "PEM"))

_SECURITY_JVM_ONLY: tuple[tuple[str, OptionKind, str | None, str, str], ...] = (
    ("sasl.login.class", CLASS, None, "medium", "Java class that logs in."),
    ("security.providers", STRING, None, "low", "Java classes that add security algorithms."),
)  # fmt: skip

_NO_JVM = "leave it out; TLS and SASL run without a JVM here"
_IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"

_OPENSSL = "leave it out; TLS is Python's ssl here, not the JVM's"

TLS_OPTIONS: tuple[Option, ...] = (
    Option("ssl.truststore.location", STRING, None, "high",
           "File with the certificates to trust: PEM, PKCS12 or JKS, detected from its content. Without a "
           "truststore, the system's certificates are trusted."),
    Option("ssl.truststore.password", PASSWORD, None, "high", "Password of ssl.truststore.location."),
    Option("ssl.truststore.certificates", PASSWORD, None, "high",
           "Certificates to trust, in PEM, instead of ssl.truststore.location."),
    Option("ssl.truststore.type", STRING, "JKS", "medium",
           "Not needed: the format is detected from the content of ssl.truststore.location.", _STORE_TYPES),
    Option("ssl.keystore.location", STRING, None, "high",
           "File with the client's private key and certificates: PEM, PKCS12 or JKS, detected from its "
           "content."),
    Option("ssl.keystore.password", PASSWORD, None, "high", "Password of ssl.keystore.location."),
    Option("ssl.keystore.key", PASSWORD, None, "high",
           "The client's private key, in PEM; with ssl.keystore.certificate.chain, instead of ssl.keystore.location."),
    Option("ssl.keystore.certificate.chain", PASSWORD, None, "high",
           "The client's certificate, in PEM, followed by those of its issuers."),
    Option("ssl.keystore.type", STRING, "JKS", "medium",
           "Not needed: the format is detected from the content of ssl.keystore.location.", _STORE_TYPES),
    Option("ssl.key.password", PASSWORD, None, "high",
           "Password of the private key, in ssl.keystore.key, a PEM file or a JKS file (there the default is "
           "ssl.keystore.password)."),
    Option("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", "medium", "TLS versions to allow."),
    Option("ssl.protocol", STRING, "TLSv1.3", "medium",
           "TLSv1.2: the same as ssl.enabled.protocols=TLSv1.2. TLSv1.3, TLS and SSL: no effect.",
           OneOf(("TLSv1.3", "TLSv1.2", "TLS", "SSL"))),
    Option("ssl.cipher.suites", LIST, "", "low",
           "Cipher suites to allow, by Java's names. Without a suite of TLS 1.3, TLS 1.2 is the highest version. "
           "Empty: those of Python's ssl."),
    Option("ssl.endpoint.identification.algorithm", STRING, "https", "low",
           "https: the broker's certificate must have the host name that the client connected to. Empty: any name "
           "is accepted.",
           Matching("(?i:https)?", "https or empty")),
    Option("ssl.engine.factory.class", CLASS, None, "low", "Java class that creates TLS engines.",
           OneOf(("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",)), JVM_ONLY, _OPENSSL),
    Option("ssl.keymanager.algorithm", STRING, "SunX509", "low", "The JVM's key manager.",
           OneOf(("SunX509",)), JVM_ONLY, _OPENSSL),
    Option("ssl.provider", STRING, None, "medium", "The JVM's security provider.",
           OneOf(("SunJSSE",)), JVM_ONLY, _OPENSSL),
    Option("ssl.secure.random.implementation", STRING, None, "low", "The JVM's random number generator.",
           status=JVM_ONLY, instead=_OPENSSL),
    Option("ssl.trustmanager.algorithm", STRING, "PKIX", "low", "The JVM's trust manager.",
           OneOf(("PKIX",)), JVM_ONLY, _OPENSSL),
)  # fmt: skip

OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
OAUTH_MODULE: Final = f"{OAUTH}OAuthBearerLoginModule"
LOGIN_HANDLERS: Final = (
    f"{OAUTH}OAuthBearerLoginCallbackHandler",
    f"{OAUTH}secured.OAuthBearerLoginCallbackHandler",
)
_RETRIEVERS: Final = tuple(
    f"{OAUTH}{name}"
    for name in ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever")
)
DEFAULT_RETRIEVER, FILE_RETRIEVER, CLIENT_CREDENTIALS_RETRIEVER, JWT_BEARER_RETRIEVER = _RETRIEVERS
_VALIDATORS = OneOf((f"{OAUTH}DefaultJwtValidator", f"{OAUTH}ClientJwtValidator"))

_ASSERTION: Final = "sasl.oauthbearer.assertion."
ASSERTION_FILES: Final = tuple(f"{_ASSERTION}{name}" for name in ("file", "private.key.file", "template.file"))

LOGIN_OPTIONS: Final[tuple[Option, ...]] = (
    Option("sasl.login.callback.handler.class", CLASS, None, "medium",
           f"With OAUTHBEARER: {LOGIN_HANDLERS[0]}, or Kafka 3's name of it, …oauthbearer.secured."
           "OAuthBearerLoginCallbackHandler. Required; other classes are refused."),
    Option("sasl.login.connect.timeout.ms", INT, 10000, "low",
           "Time to connect to the token endpoint. (Java's producer: without limit.)", AT_LEAST_1),
    Option("sasl.login.read.timeout.ms", INT, 10000, "low",
           "Time to wait for the token endpoint's response. (Java's producer: without limit.)", AT_LEAST_1),
    Option("sasl.login.refresh.buffer.seconds", SHORT, 300, "low",
           "A new token is fetched at least this long before the current one expires.", Range(0, 3600)),
    Option("sasl.login.refresh.min.period.seconds", SHORT, 60, "low",
           "Shortest time between two fetches. Ignored, like the buffer, if a token lives shorter than both "
           "together.",
           Range(0, 900)),
    Option("sasl.login.refresh.window.factor", DOUBLE, 0.8, "low",
           "Fraction of a token's lifetime after which the next one is fetched.", Range(0.5, 1.0)),
    Option("sasl.login.refresh.window.jitter", DOUBLE, 0.05, "low",
           "Random time that is added, up to this fraction of the token's lifetime.", Range(0.0, 0.25)),
    Option("sasl.login.retry.backoff.ms", LONG, 100, "low",
           "Wait before a failed fetch is retried; doubles up to sasl.login.retry.backoff.max.ms.", AT_LEAST_0),
    Option("sasl.login.retry.backoff.max.ms", LONG, 10000, "low",
           "Longest wait between two attempts, and the time after which a failed fetch is given up.", AT_LEAST_0),
    Option("sasl.oauthbearer.token.endpoint.url", STRING, None, "medium",
           "URL that issues tokens, http or https; or file:/path, a file with a token. Required with OAUTHBEARER."),
    Option("sasl.oauthbearer.jwt.retriever.class", CLASS, DEFAULT_RETRIEVER, "medium",
           f"One of Kafka's classes in {OAUTH}: DefaultJwtRetriever (FileJwtRetriever for a file: URL, else "
           "ClientCredentialsJwtRetriever), FileJwtRetriever, ClientCredentialsJwtRetriever, JwtBearerJwtRetriever.",
           OneOf(_RETRIEVERS)),
    Option("sasl.oauthbearer.client.credentials.client.id", STRING, None, "medium",
           "Client id; or clientId in sasl.jaas.config."),
    Option("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, "medium",
           "Client secret; or clientSecret in sasl.jaas.config."),
    Option("sasl.oauthbearer.scope", STRING, None, "medium", "Requested scope; or scope in sasl.jaas.config."),
    Option("sasl.oauthbearer.header.urlencode", BOOLEAN, False, "low",
           "URL-encode client id and secret in the header (RFC 6749); some identity providers expect it."),
    Option(f"{_ASSERTION}file", STRING, None, "medium",
           "JwtBearerJwtRetriever: file with a ready-made assertion, instead of a private key."),
    Option(f"{_ASSERTION}private.key.file", STRING, None, "medium",
           "JwtBearerJwtRetriever: file with the private key that signs assertions, in PKCS8."),
    Option(f"{_ASSERTION}private.key.passphrase", PASSWORD, None, "medium", "Password of that private key."),
    Option(f"{_ASSERTION}algorithm", STRING, "RS256", "medium", "Algorithm that signs the assertion.",
           OneOf(("RS256", "ES256"))),
    Option(f"{_ASSERTION}template.file", STRING, None, "medium",
           "File with a JSON object: the fixed parts of the assertion's header and payload."),
    Option(f"{_ASSERTION}claim.aud", STRING, None, "medium", "Audience of the assertion."),
    Option(f"{_ASSERTION}claim.iss", STRING, None, "medium", "Issuer of the assertion."),
    Option(f"{_ASSERTION}claim.sub", STRING, None, "medium", "Subject of the assertion."),
    Option(f"{_ASSERTION}claim.exp.seconds", INT, 300, "low",
           "Lifetime of the assertion, in seconds.", Range(0, 86400)),
    Option(f"{_ASSERTION}claim.nbf.seconds", INT, 60, "low",
           "The assertion is valid from this many seconds before now.",
           Range(0, 3600)),
    Option(f"{_ASSERTION}claim.jti.include", BOOLEAN, False, "medium", "Give each assertion a unique id (claim jti)."),
    Option("sasl.kerberos.service.name", STRING, None, "medium",
           "GSSAPI: first part of the brokers' principals, kafka in kafka/host@REALM; or serviceName in "
           "sasl.jaas.config."),
    Option("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, "low",
           "GSSAPI: fraction of a ticket's lifetime after which the keytab gets the next ticket, or the ticket "
           "cache is read again."),
    Option("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, "low",
           "Random time that is added, up to this fraction of the ticket's lifetime."),
    Option("sasl.kerberos.min.time.before.relogin", LONG, 60000, "low",
           "Shortest time between two renewals. Ignored if a ticket lives shorter than that."),
)  # fmt: skip

LOGIN_OPTION_NAMES: Final = frozenset(option.name for option in LOGIN_OPTIONS)

_BROKERS_OWN: tuple[tuple[str, OptionKind, bool | int | str | None, str], ...] = (
    ("sasl.oauthbearer.allow.unverified.audience", BOOLEAN, False, "medium"),
    ("sasl.oauthbearer.allow.unverified.issuer", BOOLEAN, False, "medium"),
    ("sasl.oauthbearer.clock.skew.seconds", INT, 30, "low"),
    ("sasl.oauthbearer.expected.audience", LIST, "", "high"),
    ("sasl.oauthbearer.expected.issuer", STRING, None, "high"),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3600000, "low"),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, "low"),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, "low"),
    ("sasl.oauthbearer.jwks.endpoint.url", STRING, None, "medium"),
    ("sasl.oauthbearer.scope.claim.name", STRING, "scope", "low"),
    ("sasl.oauthbearer.sub.claim.name", STRING, "sub", "low"),
)

_LOGIN_OPTIONS_WITHOUT_EFFECT: Final[tuple[Option, ...]] = (
    *(Option(*row, "Only brokers validate tokens.", status=Status.NO_EFFECT) for row in _BROKERS_OWN),
    Option("sasl.oauthbearer.jwt.validator.class", CLASS, f"{OAUTH}DefaultJwtValidator", "medium",
           "Class that validates tokens; only brokers do.", _VALIDATORS, Status.NO_EFFECT),
    Option("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", "low",
           "Program with which Java renews a ticket cache. Here, renew the cache outside of the job, or use a "
           "keytab.",
           status=Status.NO_EFFECT),
)  # fmt: skip

SECURITY_OPTIONS: tuple[Option, ...] = (
    Option(
        "sasl.client.callback.handler.class",
        CLASS,
        None,
        "medium",
        "Java class that handles SASL callbacks; IAMClientCallbackHandler of Amazon MSK may stay.",
        OneOf((_IAM_HANDLER, f"shadedmskiam.{_IAM_HANDLER}")),
        JVM_ONLY,
        _NO_JVM,
    ),
    *LOGIN_OPTIONS,
    *_LOGIN_OPTIONS_WITHOUT_EFFECT,
    *(Option(*row, status=JVM_ONLY, instead=_NO_JVM) for row in _SECURITY_JVM_ONLY),
)

PRODUCER_OPTIONS: tuple[Option, ...] = (
    Option("bootstrap.servers", LIST, None, "high",
           "Brokers for the first connection, host:port separated by commas. The client learns the other brokers "
           "from them. Required."),
    Option("acks", STRING, "all", "low",
           "Acknowledgements to wait for: of all in-sync replicas (all, -1), of the leader (1), none (0).",
           OneOf(("all", "-1", "0", "1"))),
    Option("enable.idempotence", BOOLEAN, True, "low",
           "Retries write no record twice and keep the order. Needs acks=all, retries above 0 and "
           "max.in.flight.requests.per.connection of at most 5."),
    Option("retries", INT, 2147483647, "high",
           "Number of retries of a batch after a retriable error. delivery.timeout.ms may end them earlier.",
           AT_LEAST_0),
    Option("delivery.timeout.ms", INT, 120000, "medium",
           "Time within which a batch must be acknowledged, retries included. At least linger.ms + "
           "request.timeout.ms.",
           AT_LEAST_0),
    Option("request.timeout.ms", INT, 30000, "medium",
           "Time to wait for a response before the request is retried or fails.", AT_LEAST_1),
    Option("max.block.ms", LONG, 60000, "medium",
           "Time that one send may block, waiting for metadata and for buffer.memory together. For columns "
           "(send_columns, append_columns) the time starts again whenever memory is granted, since one call may "
           "need many times buffer.memory.",
           AT_LEAST_0),
    Option("max.in.flight.requests.per.connection", INT, 5, "low",
           "Requests to one broker that may wait for a response; at most 5 with idempotence. Without idempotence, "
           "only 1 keeps the order when batches are retried.", AT_LEAST_1),
    Option("retry.backoff.ms", LONG, 100, "low",
           "Wait before a failed request is retried; doubles up to retry.backoff.max.ms.", AT_LEAST_0),
    Option("retry.backoff.max.ms", LONG, 1000, "low", "Longest wait before a failed request is retried.", AT_LEAST_0),
    Option("batch.size", INT, 262144, "medium",
           "Largest batch of one partition, in bytes. 0: every record is a batch of its own. The default is lowered "
           "to max.request.size and to 1/16 of buffer.memory. (Java's producer: 16384.)", AT_LEAST_0),
    Option("linger.ms", LONG, 5, "medium", "Time that a batch that is not full waits for more records.", AT_LEAST_0),
    Option("buffer.memory", LONG, 33554432, "high",
           "Bytes of records that may wait in this process; at least batch.size if that is set. When it is full, "
           "appends block for up to max.block.ms.", AT_LEAST_0),
    Option("buffer.memory.allocation.strategy", STRING, "full", "medium",
           "Whether Java reserves a whole batch.size for a new batch (full) or less (incremental). Here a batch takes "
           "the memory of its records.", OneOf(("full", "incremental")), NO_EFFECT),
    Option("max.request.size", INT, 1048576, "medium",
           "Largest request in bytes, and so the largest record before compression.", Range(SMALLEST_RECORD)),
    Option("compression.type", STRING, "none", "high", "Compression of whole batches.",
           OneOf(tuple(CODECS))),
    *(
        Option(f"compression.{name}.level", INT, codec.level.default, "medium", codec.level.help,
               Range(codec.level.lowest, codec.level.highest, codec.level.besides))
        for name, codec in CODECS.items() if codec.level is not None
    ),
    Option("partitioner.class", CLASS, None, "medium",
           "Chooses the partition of rows that have none. default: murmur2 of the key, sticky without a key, as in "
           "Kafka. crc32: as default, with librdkafka's hash of the key (consistent_random). round_robin: ignores "
           "keys. uniform_sticky: ignores keys, another partition for each new batch. sticky: as uniform_sticky "
           "without a key, murmur2 of the key with one. The Java class names RoundRobinPartitioner, "
           "UniformStickyPartitioner and DefaultPartitioner (sticky) are accepted. package.module:Class: a Python "
           "class of yours, a Partitioner over columns or a RecordPartitioner. Other Java classes are refused."),
    Option("partitioner.ignore.keys", BOOLEAN, False, "medium", "Treat records with a key like records without one."),
    Option("partitioner.adaptive.partitioning.enable", BOOLEAN, True, "low",
           "Send fewer records without a key to partitions whose broker is slow."),
    Option("partitioner.availability.timeout.ms", LONG, 0, "low",
           "Records without a key avoid partitions whose broker accepted nothing for this long; 0: never.", AT_LEAST_0),
    Option("partitioner.rack.aware", BOOLEAN, False, "low",
           "Records without a key go only to partitions whose leader is in client.rack, so they do not leave the zone; "
           "if none of these is available, to any partition. Needs client.rack. Applies to default and crc32 of "
           "partitioner.class; other partitioners ignore it, with a warning. Records with a key are not affected "
           "(KIP-1123)."),
    Option("client.rack", STRING, "", "low",
           "Zone of this client, as in broker.rack of the brokers near it; for partitioner.rack.aware."),
    Option("client.id", STRING, "", "medium",
           "Name of this client in the brokers' logs, metrics and quotas. Empty: `producer-1`, `producer-2`, …; with "
           "transactional.id `producer-<transactional.id>`. Connections that look up or create topics, or commit: "
           "`adminclient-1`, …"),
    Option("client.dns.lookup", STRING, "use_all_dns_ips", "medium",
           "use_all_dns_ips: try all addresses of a host name in turn. resolve_canonical_bootstrap_servers_only: "
           "first replace the bootstrap servers by their canonical names.",
           OneOf(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"))),
    Option("bootstrap.resolve.timeout.ms", LONG, 0, "high",
           "Time within which a host of bootstrap.servers must be resolved (KIP-909). Here each call tries for "
           "max.block.ms.", AT_LEAST_0, NO_EFFECT),
    Option("send.buffer.bytes", INT, -1, "medium",
           "Size of each connection's TCP send buffer (SO_SNDBUF). -1: the system's default, which Linux adapts to the "
           "connection. (Java's producer: 131072, half a batch of the default size.)",
           MINUS_1_OR_MORE),
    Option("receive.buffer.bytes", INT, 32768, "medium",
           "Size of each connection's TCP receive buffer (SO_RCVBUF). -1: the system's default.",
           MINUS_1_OR_MORE),
    Option("connections.max.idle.ms", LONG, 540000, "medium",
           "Close a connection after this long without traffic. -1: never.", MINUS_1_OR_MORE),
    Option("reconnect.backoff.ms", LONG, 50, "low",
           "Wait before reconnecting to the same broker; doubles up to reconnect.backoff.max.ms.", AT_LEAST_0),
    Option("reconnect.backoff.max.ms", LONG, 1000, "low",
           "Longest wait before reconnecting. If only reconnect.backoff.ms is set, its value: the wait then does "
           "not grow.", AT_LEAST_0),
    Option("socket.connection.setup.timeout.ms", LONG, 10000, "medium",
           "Time to establish a connection; doubles with each failure up to socket.connection.setup.timeout.max.ms.",
           AT_LEAST_1),
    Option("socket.connection.setup.timeout.max.ms", LONG, 30000, "medium",
           "Longest time to establish a connection.", AT_LEAST_1),
    Option("metadata.max.age.ms", LONG, 300000, "low",
           "Age at which metadata is refreshed even if no request failed.", AT_LEAST_0),
    Option("metadata.max.idle.ms", LONG, 300000, "low",
           "Time without a write after which a topic is left out of metadata requests.", Range(5000)),
    Option("metadata.recovery.strategy", STRING, "rebootstrap", "low",
           "If no known broker is available. rebootstrap: start again from bootstrap.servers. none: keep trying the "
           "known brokers.",
           OneOf(("rebootstrap", "none"))),
    Option("metadata.recovery.rebootstrap.trigger.ms", LONG, 300000, "low",
           "Start again from bootstrap.servers after this long without metadata.", AT_LEAST_0),
    Option("metadata.cluster.check.enable", BOOLEAN, True, "low",
           "Name cluster and node to each broker at connecting (KIP-1242). Here the cluster is known by its id in "
           "metadata.", status=NO_EFFECT),
    Option("security.protocol", STRING, "PLAINTEXT", "medium",
           "Protocol of the connections: with or without TLS (SSL), with or without SASL.",
           OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))),
    Option("enable.metrics.push", BOOLEAN, True, "low",
           "Pushes client metrics to the cluster (KIP-714).", status=NO_EFFECT),
    Option("metrics.num.samples", INT, 2, "low",
           "Number of samples that a metric is computed from.", AT_LEAST_1, NO_EFFECT),
    Option("metrics.recording.level", STRING, "INFO", "low", "Level of detail of metrics.",
           OneOf(("INFO", "DEBUG", "TRACE")), NO_EFFECT),
    Option("metrics.sample.window.ms", LONG, 30000, "low",
           "Time that one sample of a metric covers.", AT_LEAST_0, NO_EFFECT),
    Option("transaction.timeout.ms", INT, 60000, "low",
           "Time after which the broker aborts an open transaction. With deliveryGuarantee=exactly-once the default is "
           "900000, the brokers' default of transaction.max.timeout.ms.", AT_LEAST_1),
    Option("transactional.id", STRING, None, "low",
           "Identity of a transactional producer; a new producer with the same id fences the old one. Refused by the "
           "Spark sink: its tasks would fence each other."),
    Option("transaction.two.phase.commit.enable", BOOLEAN, False, "low",
           "Transactions without a timeout, for an external coordinator (KIP-939).",
           status=NOT_YET, instead="no released broker supports it; leave it out"),
    Option("key.serializer", CLASS, None, "high",
           "Serializer for the keys of send: package.module:Class, a Python class with the methods of Serializer; "
           "or Java's name of its serializer of String, ByteArray, Integer, Long, Double or Void. "
           "Without one, keys must be bytes. Refused by the Spark sink, which writes columns of bytes or strings as "
           "they are."),
    Option("value.serializer", CLASS, None, "high", "Serializer for the values of send, as key.serializer."),
    Option("interceptor.classes", LIST, "", "low",
           "Interceptors for send: Python classes as package.module:Class, separated by commas, with the methods of "
           "ProducerInterceptor. Refused by the Spark sink: change the columns before the write."),
    Option("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter", "low",
           "Java classes that receive metrics.",
           status=JVM_ONLY, instead="leave it out; see metrics() of KafkaProducer, and the receipts of the Spark sink"),
    Option("auto.include.jmx.reporter", BOOLEAN, True, "low", "Report metrics over JMX (removed in Kafka 4.0).",
           status=JVM_ONLY, instead="leave it out; there is no JMX without a JVM"),
    Option("config.providers", LIST, "", "low",
           "Aliases of config providers, in any case. ${alias:path:key} in the value of another option is replaced "
           "by what the provider returns. Each alias has config.providers.<alias>.class, one of Java's "
           "FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider, and may have .param.allowed.paths "
           "or .param.allowlist.pattern. Without this option, the three have the aliases file, dir and env."),
    *TLS_OPTIONS,
    Option("sasl.mechanism", STRING, "GSSAPI", "medium",
           "Mechanism for SASL_PLAINTEXT and SASL_SSL: GSSAPI (Kerberos), PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or "
           "OAUTHBEARER; or the name of an entry point of the group spark_kafka_sink.sasl."),
    Option("sasl.jaas.config", PASSWORD, None, "medium",
           "User and password as Java's login module of the mechanism: org.apache.kafka.common.security.plain."
           "PlainLoginModule or …scram.ScramLoginModule required username=\"…\" password=\"…\"; or, with OAUTHBEARER, "
           "…oauthbearer.OAuthBearerLoginModule required clientId=\"…\" clientSecret=\"…\"; with scope, "
           "extension_<name>, and ssl.* options of the token endpoint if there are any; or, with GSSAPI, com.sun."
           "security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=\"…\" principal=\"…\", or "
           "useTicketCache=true."),
    Option("sasl.token.provider", STRING, None, "medium",
           "Source of the tokens for OAUTHBEARER: aws (Amazon MSK with IAM), gcp, azure, or the name of an entry "
           "point of the group spark_kafka_sink.sasl. Also written saslTokenProvider. Not an option of Java's "
           "client."),
    Option("allow.auto.create.topics", BOOLEAN, True, "low",
           "false: no request of this producer makes the brokers create a topic. In Spark, see topicCreation. Not an "
           "option of Java's producer, which always allows it."),
    *SECURITY_OPTIONS,
)  # fmt: skip

OWN_NAMES = MappingProxyType({"saslTokenProvider": "sasl.token.provider"})
"""Options that Java's client does not have may also be written like the sink's own."""

OPTIONS_BY_NAME = {option.name: option for option in PRODUCER_OPTIONS}

PARTITIONERS = ("default", "round_robin", "uniform_sticky", "sticky", "crc32")
"""Values of ``partitioner.class`` besides Python classes."""

RACK_AWARE_PARTITIONERS = ("default", "crc32")
"""Those that ``partitioner.rack.aware`` applies to."""

CONSUMER_OPTIONS = frozenset({
    "auto.commit.interval.ms", "auto.offset.reset", "check.crcs", "default.api.timeout.ms",
    "enable.auto.commit", "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms",
    "isolation.level", "key.deserializer", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
    "partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode",
    "share.acquire.mode", "value.deserializer",
})  # fmt: skip
"""Options that only Kafka's consumer has, which is what the error says."""
