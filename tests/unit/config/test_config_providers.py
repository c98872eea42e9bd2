"""Placeholders of config providers: what they stand for, when they are looked up, and that no text shows it."""

import pickle

import pytest

from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.common.config.providers import ConfigProviders
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.spark.options import SinkOptions
from tests.support.options import SERVERS, fault, parse
from tests.support.waiting import cpu_ratio

JAVA = "org.apache.kafka.common.config.provider."
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


def providers(**classes):
    own = {f"config.providers.{alias}.class": f"{JAVA}{name}" for alias, name in classes.items()}
    return {"config.providers": ",".join(classes), **own}


@pytest.fixture
def secrets(tmp_path):
    (tmp_path / "kafka.properties").write_text("password=hunter2\nname=prüfer\nagain=${file:x:y}\nlinger=seven\n")
    (tmp_path / "token").write_text("hunter3\n")
    return tmp_path


def test_without_the_option_file_dir_and_env_stand_for_javas_three(secrets, monkeypatch):
    monkeypatch.setenv("TEAM", "blue")
    name = f"${{file:{secrets}/kafka.properties:name}} ${{dir:{secrets}:token}}${{env:TEAM}}"
    assert parse({"client.id": name}).client_id == "prüfer hunter3\nblue"


def test_aliases_ignore_case_as_spark_passes_option_names_in_lower_case(secrets):
    given = {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.config.providers": "Vault",
        "kafka.config.providers.vault.class": f"kafkashaded.{JAVA}FileConfigProvider",
        "kafka.client.id": f"${{Vault:{secrets}/kafka.properties:name}}",
    }
    assert SinkOptions.parse(given).producer.client_id == "prüfer"


def test_given_providers_replace_the_three(monkeypatch):
    monkeypatch.setenv("TEAM", "blue")
    given = {**providers(vars="EnvVarConfigProvider"), "client.id": "${env:TEAM} ${vars:TEAM}"}
    assert parse(given).client_id == "${env:TEAM} blue"


@pytest.mark.parametrize("text", ["${nope:a}", "${file:kafka.properties}", "${env:NO_SUCH_VARIABLE}", "${dir:/:..}",
                                  "${dir:/no/such/folder:a}", "$env:HOME", "${}"])  # fmt: skip
def test_outside_of_credentials_a_placeholder_without_a_value_stays(text):
    assert parse({"client.id": text}).client_id == text


@pytest.mark.parametrize("name", ["FileConfigProvider", "DirectoryConfigProvider"])
def test_files_outside_of_the_allowed_paths_are_not_read(secrets, tmp_path_factory, name):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    path, key = ("/kafka.properties", "name") if name == "FileConfigProvider" else ("", "token")
    given = {**providers(p=name), "config.providers.p.param.allowed.paths": f"{elsewhere},{elsewhere}/more"}
    for way in (f"{secrets}{path}", f"{elsewhere}/../{secrets.name}{path}", f"{elsewhere}/../../{secrets}{path}"):
        text = f"${{p:{way}:{key}}}"
        assert parse({**given, "client.id": text}).client_id == text
    given["config.providers.p.param.allowed.paths"] = f"{elsewhere},{secrets}"
    assert parse({**given, "client.id": f"${{p:{secrets}{path}:{key}}}"}).client_id in ("prüfer", "hunter3")


def test_variables_outside_of_the_allowlist_are_not_read(monkeypatch):
    monkeypatch.setenv("KAFKA_TEAM", "blue")
    monkeypatch.setenv("HOME_TEAM", "red")
    given = {**providers(env="EnvVarConfigProvider"), "config.providers.env.param.allowlist.pattern": "KAFKA_.*"}
    assert parse({**given, "client.id": "${env:KAFKA_TEAM} ${env:HOME_TEAM}"}).client_id == "blue ${env:HOME_TEAM}"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"config.providers": "vault"}, f"config.providers.vault.class is required; write {JAVA}FileConfigProvider, "
         "DirectoryConfigProvider or EnvVarConfigProvider, or resolve the values in your own code."),
        ({"config.providers": "k", "config.providers.k.class": "io.strimzi.kafka.KubernetesSecretConfigProvider"},
         "config.providers.k.class is 'io.strimzi.kafka.KubernetesSecretConfigProvider', which cannot be loaded "
         f"without a JVM; write {JAVA}FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider, or resolve "
         "the values in your own code."),
        ({**providers(f="FileConfigProvider"), "config.providers.f.param.allowed.path": "/x"},
         "config.providers.f.param.allowed.path is not a parameter of FileConfigProvider, which has allowed.paths."),
        ({**providers(f="FileConfigProvider"), "config.providers.f.param.allowed.paths": "secrets"},
         "config.providers.f.param.allowed.paths has 'secrets'; each path must be absolute."),
        ({**providers(e="EnvVarConfigProvider"), "config.providers.e.param.allowlist.pattern": "(",
          "client.id": "${e:HOME}"},
         "config.providers.e.param.allowlist.pattern is not a regular expression: missing ), unterminated subpattern "
         "at position 0."),
        ({"config.providers.f.class": f"{JAVA}FileConfigProvider"},
         "config.providers.f.class belongs to none of the aliases in config.providers (none)."),
        ({"client.id": "${env:path:HOME}"}, "client.id has ${env:path:HOME}: takes no path: write ${alias:NAME}."),
        ({"client.id": "${file:/no/such/file:key}"}, "client.id has ${file:/no/such/file:key}: /no/such/file cannot be "
         "read: No such file or directory."),
        ({"client.id": "${file:/dev/zero:key}"}, "client.id has ${file:/dev/zero:key}: /dev/zero is not a file."),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused_with_what_to_write(options, reason):
    assert fault(options) == reason


@pytest.mark.parametrize(
    ("option", "key"), [("linger.ms", "password"), ("bootstrap.servers", "password"), ("security.protocol", "password")]
)
def test_a_fault_shows_the_placeholder_instead_of_its_value(secrets, option, key):
    placeholder = f"${{file:{secrets}/kafka.properties:{key}}}"
    shown = fault({option: placeholder}, "kafka.")
    assert "hunter2" not in shown
    assert shown == (f"kafka.{option} is refused, with the value that stands for {placeholder} and is not shown here.")


def test_a_warning_shows_the_placeholder_instead_of_its_value(monkeypatch):
    monkeypatch.setenv("ACKS", "1")
    said = r"^acks is adjusted or has no effect, with the value that stands for \$\{env:ACKS\} and is not shown here\.$"
    with pytest.warns(ConfigWarning, match=said):
        ProducerConfig.parse({**SERVERS, "acks": "${env:ACKS}"})


def test_a_value_that_is_no_utf_8_is_an_error_without_it(secrets, monkeypatch):
    (secrets / "odd").write_bytes(b"hunter2\xff")
    monkeypatch.setenv("ODD", "hunter2\udcff")
    for placeholder in (f"${{dir:{secrets}:odd}}", f"${{file:{secrets}/odd:key}}", "${env:ODD}"):
        shown = fault({"client.id": placeholder})
        assert shown.endswith("is not UTF-8.")
        assert "hunter2" not in shown


# Credentials.


def login(placeholder):
    return {**LOGIN, "sasl.jaas.config": f'{PLAIN} required username="alice" password="{placeholder}";'}


def test_pickle_and_key_of_a_configuration_have_the_placeholder_and_no_secret(secrets):
    options = login(f"${{file:{secrets}/kafka.properties:password}}")
    before = parse(options)
    assert b"hunter2" not in pickle.dumps(before)
    assert "hunter2" not in f"{before} {before!r} {before.by_name()}"
    loaded = pickle.loads(pickle.dumps(before))
    (secrets / "kafka.properties").write_text("password=changed")
    assert {loaded: "producer"}[parse(options)] == "producer"
    assert 'password="changed"' in loaded.with_credentials("sasl_").sasl_jaas_config.value


def test_only_the_credentials_asked_for_are_looked_up(secrets):
    config = parse({
        **login("${env:NO_SUCH_VARIABLE}"), "security.protocol": "SASL_SSL",
        "ssl.key.password": f"${{dir:{secrets}:token}}",
    })  # fmt: skip
    assert config.with_credentials("ssl_").ssl_key_password == Password("hunter3\n")
    with pytest.raises(ConfigError, match="^sasl.jaas.config has \\${env:NO_SUCH_VARIABLE}, for which there is no"):
        config.with_credentials("sasl_")


def test_a_placeholder_of_no_provider_in_a_credential_is_refused_and_not_shown():
    shown = fault(login("${hunter2:key}"), "kafka.")
    assert shown == (
        "kafka.sasl.jaas.config has a placeholder ${alias:…} of an unknown config provider; the aliases are dir, env, "
        "file."
    )


def test_what_can_be_read_of_the_login_module_is_checked_before_the_login():
    jaas = f'{PLAIN} required user="${{env:USER}}" password="${{env:PASSWORD}}";'
    assert fault({**LOGIN, "sasl.jaas.config": jaas}).startswith("sasl.jaas.config has no username; write")


def test_incident_colons_behind_an_open_placeholder_took_time_by_the_cube_of_their_number():
    """For eight times the length, the cube is 512 times the work."""
    resolve = ConfigProviders(()).resolve
    assert cpu_ratio(lambda: resolve("${" + ":" * 400), lambda: resolve("${" + ":" * 50)) < 60
