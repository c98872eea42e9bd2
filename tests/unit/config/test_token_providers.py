"""Which settings ask for a cloud's tokens, and what is refused with what to write."""

import warnings

import pytest

from spark_kafka_sink.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.login import token_providers
from spark_kafka_sink.login.mechanisms import sasl_mechanism
from spark_kafka_sink.spark.options import SinkOptions

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM = "software.amazon.msk.auth.iam."
SERVERS = {"bootstrap.servers": "b-1.c.x.c2.kafka.eu-central-1.amazonaws.com:9098", "security.protocol": "SASL_SSL"}


def parse(options, prefix=""):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ProducerConfig.parse({**SERVERS, **options}, prefix)


def fault(options, prefix=""):
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.parse({**SERVERS, **options}, prefix)
    (only,) = raised.value.faults
    assert "hunter2" not in only
    return only


@pytest.mark.parametrize("shaded", ["", "shadedmskiam.", "kafkashaded."])
def test_the_settings_of_amazons_java_library_mean_aws(shaded):
    config = parse({
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f'{shaded}{IAM}IAMLoginModule required awsProfileName="orders";',
    })  # fmt: skip
    assert (config.sasl_mechanism, config.sasl_token_provider) == ("OAUTHBEARER", "aws")


@pytest.mark.parametrize("shaded", ["", "shadedmskiam."])
def test_the_client_handler_that_amazon_documents_may_stay(shaded):
    jaas = f"{IAM}IAMLoginModule required;"
    handler = f"{shaded}{IAM}IAMClientCallbackHandler"
    config = parse({
        "sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": jaas, "sasl.client.callback.handler.class": handler,
    })  # fmt: skip
    assert config.sasl_token_provider == "aws"


@pytest.mark.parametrize(
    ("handler", "provider"),
    [
        (f"{IAM}IAMOAuthBearerLoginCallbackHandler", "aws"),
        ("com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler", "gcp"),
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
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_what_to_write(options, reason):
    assert fault(options).startswith(reason)


def test_without_the_clouds_package_the_error_says_what_to_install(monkeypatch):
    def missing(provider, config, clock):
        raise ModuleNotFoundError("No module named 'botocore'", name="botocore")

    monkeypatch.setattr(token_providers, "_of_cloud", missing)
    with pytest.raises(ConfigError) as raised:
        sasl_mechanism(parse({"saslTokenProvider": "aws"}))
    assert str(raised.value) == (
        "saslTokenProvider=aws needs a package that is missing here (botocore): pip install 'spark-kafka-sink[aws]'."
    )


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_each_provider_makes_a_mechanism_before_any_credentials_are_asked_for(provider):
    assert sasl_mechanism(parse({"saslTokenProvider": provider})) is not None


def test_an_entry_point_is_a_provider(monkeypatch, tmp_path):
    folder = tmp_path / "own_provider-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: own-provider\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[spark_kafka_sink.sasl]\nown = own_provider_module:Own\n")
    (tmp_path / "own_provider_module.py").write_text(
        "class Own:\n    what = 'a token of our own'\n    def __init__(self, config):\n        self.config = config\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = parse({"saslTokenProvider": "own", "sasl.jaas.config": f'{OAUTH} required key="value";'})
    source = token_providers.provided_tokens(config, None)
    assert (source.what, source.config) == ("a token of our own", config)


def test_without_sasl_the_option_has_no_effect_and_a_warning_says_so():
    with pytest.warns(ConfigWarning, match=r"^sasl\.token\.provider has no effect, as security\.protocol is SSL"):
        ProducerConfig.parse({**SERVERS, "security.protocol": "SSL", "saslTokenProvider": "aws"})
