"""Which settings ask for a cloud's tokens, and what is refused with what to write."""

import importlib
import sys

import pytest

from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.errors import ConfigError, LoginError
from spark_kafka_sink.network.login import token_providers
from spark_kafka_sink.network.login.sasl import sasl_mechanism
from spark_kafka_sink.network.login.token_login import Token
from spark_kafka_sink.spark.options import SinkOptions
from tests.support import options as parsing

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM = "software.amazon.msk.auth.iam."
GOOGLE_S_HANDLER = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"


SERVERS = {"bootstrap.servers": "b-1.c.x.c2.kafka.eu-central-1.amazonaws.com:9098", "security.protocol": "SASL_SSL"}


def parse(options):
    return parsing.parse({**SERVERS, **options})


@pytest.mark.parametrize("shaded", ["", "shadedmskiam.", "kafkashaded."])
def test_the_settings_of_amazons_java_library_mean_aws(shaded):
    config = parse({
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f'{shaded}{IAM}IAMLoginModule required awsProfileName="orders";',
    })  # fmt: skip
    assert (config.sasl_mechanism, config.sasl_token_provider) == ("OAUTHBEARER", "aws")


@pytest.mark.parametrize(
    ("handler", "provider"),
    [
        (f"{IAM}IAMOAuthBearerLoginCallbackHandler", "aws"),
        (GOOGLE_S_HANDLER, "gcp"),
    ],
)
def test_a_clouds_login_handler_of_java_means_its_provider(handler, provider):
    config = parse({
        "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH} required;",
        "sasl.login.callback.handler.class": handler,
    })  # fmt: skip
    assert (config.sasl_mechanism, config.sasl_token_provider) == ("OAUTHBEARER", provider)


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_the_option_alone_is_enough_in_the_sink_and_the_producer(provider):
    config = parse({"saslTokenProvider": provider})
    assert (config.sasl_mechanism, config.sasl_token_provider) == ("OAUTHBEARER", provider)
    kafka = {f"kafka.{name}": value for name, value in SERVERS.items()}
    assert SinkOptions.parse({**kafka, "sasltokenprovider": provider}).producer == config


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"saslTokenProvider": "awz"}, "sasl.token.provider must be aws, gcp, azure, or the name of an entry point of "
         "the group spark_kafka_sink.sasl, but is 'awz'"),
        ({"saslTokenProvider": "aws", "sasl.mechanism": "PLAIN"},
         "sasl.token.provider is 'aws', which needs sasl.mechanism=OAUTHBEARER."),
        ({"saslTokenProvider": "gcp", "sasl.mechanism": "AWS_MSK_IAM"},
         "sasl.token.provider is 'gcp', which needs sasl.mechanism=OAUTHBEARER."),
        ({"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f'{IAM}IAMLoginModule required '
          'awsRoleArn="r" awsRoleSecretAccessKey="hunter2";'},
         "sasl.jaas.config has options of its login module that have no effect: aws honours only awsProfileName, "
         "awsRoleArn, awsRoleSessionName; leave the others out."),
        ({"saslTokenProvider": "azure", "sasl.jaas.config": f'{OAUTH} required clientSecret="hunter2";'},
         "sasl.jaas.config has options of its login module that have no effect: azure honours none; leave them out."),
        ({"saslTokenProvider": "gcp", "sasl.jaas.config": f"{IAM}IAMLoginModule required;"},
         f"sasl.jaas.config has a login module that has no tokens of gcp; write {OAUTH} required;"),
        ({"saslTokenProvider": "aws", "sasl.login.callback.handler.class": GOOGLE_S_HANDLER},
         "sasl.login.callback.handler.class means tokens of gcp, but sasl.token.provider is 'aws'; leave one out."),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_what_to_write(options, reason):
    assert parsing.fault({**SERVERS, **options}).startswith(reason)


def test_without_the_clouds_package_the_error_says_what_to_install(monkeypatch):
    class Row:
        def load(self):
            raise ModuleNotFoundError("No module named 'botocore'", name="botocore")

    monkeypatch.setattr(token_providers, "EntryPoint", lambda *_: Row())
    with pytest.raises(ConfigError) as raised:
        sasl_mechanism(parse({"saslTokenProvider": "aws"}))
    assert str(raised.value) == (
        "saslTokenProvider=aws needs a package that is missing here (botocore): pip install 'spark-kafka-sink[aws]', "
        "from where you installed it."
    )


def test_options_of_another_source_of_tokens_have_no_effect_and_a_warning_says_so():
    warned = r"^sasl\.oauthbearer\.scope has no effect, as the tokens are those of azure; leave it out\.$"
    with pytest.warns(ConfigWarning, match=warned):
        ProducerConfig.parse({**SERVERS, "saslTokenProvider": "azure", "sasl.oauthbearer.scope": "s"})


@pytest.fixture
def entry_point(monkeypatch, tmp_path):
    """``entry_point(code)``: tokens of the provider ``own``, whose entry point is ``Own`` in ``code``."""

    def tokens(code):
        folder = tmp_path / "own_provider-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: own-provider\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("[spark_kafka_sink.sasl]\nown = own_provider_module:Own\n")
        (tmp_path / "own_provider_module.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "own_provider_module", raising=False)
        importlib.invalidate_caches()
        config = parse({"saslTokenProvider": "own", "sasl.jaas.config": f'{OAUTH} required key="value";'})
        return token_providers.provided_tokens(config)

    return tokens


SOURCE = """
from spark_kafka_sink.network.login.token_login import Token
class Own:
    what = "a token of our own"
    def __init__(self, config):
        self.config = config
    def fetch(self):
        return {}
"""


def test_an_entry_point_is_a_provider_and_gets_the_configuration(entry_point):
    source = entry_point(SOURCE.format("Token(self.config.sasl_token_provider, 1e15)"))
    assert (source.what, source.fetch()) == ("a token of our own", Token("own", 1e15))


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ("None", "a NoneType"), ("'hunter2'", "a str"), ("Token(b'hunter2', 1e15)", "a Token with other types"),
        ("Token('hunter2', None)", "a Token with other types"),
        ("Token('hunter2', float('nan'))", "a Token with other types"),
        ("Token('hunter2', 1e15, 'now')", "a Token with other types"),
    ],
)  # fmt: skip
def test_what_is_no_token_of_an_entry_point_is_an_error_that_shows_none_of_it(entry_point, returned, shown):
    with pytest.raises(LoginError) as raised:
        entry_point(SOURCE.format(returned)).fetch()
    assert str(raised.value).startswith(f"saslTokenProvider=own gave {shown} instead of a Token whose value is a str")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module", "failed with ModuleNotFoundError"),
        ("def Own(config): raise ValueError('hunter2')", "failed with ValueError"),
        ("def Own(config): return None", "makes a NoneType, which lacks fetch() and what, which a TokenSource has."),
    ],
)
def test_an_entry_point_that_makes_no_source_is_one_error_that_names_it(entry_point, code, reason):
    with pytest.raises(ConfigError) as raised:
        entry_point(code)
    assert str(raised.value) == f"saslTokenProvider=own: the entry point own_provider_module:Own {reason}"


def test_without_sasl_the_option_has_no_effect_and_a_warning_says_so():
    with pytest.warns(ConfigWarning, match=r"^sasl\.token\.provider has no effect, as security\.protocol is SSL"):
        ProducerConfig.parse({**SERVERS, "security.protocol": "SSL", "saslTokenProvider": "aws"})
