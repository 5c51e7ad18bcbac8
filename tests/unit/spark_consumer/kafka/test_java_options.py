"""From librdkafka's words into Java's, without a secret in any error."""

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import KAFKA_OPTIONS
from tidegate.spark_consumer.kafka.java_options import java_options

LOGIN = {"sasl.mechanism": "plain", "sasl.username": "me", "sasl.password": "hush"}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n"
WHOLE = {
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "hush",
    "ssl.certificate.pem": CERTIFICATE,
    "ssl.key.pem": KEY,
}


def refused(options):
    with pytest.raises(ConfigError) as caught:
        java_options(options)
    assert "hush" not in str(caught.value)
    assert "kafka_options" in str(caught.value)
    return str(caught.value)


def test_nothing_becomes_nothing():
    assert java_options({}) == {}


def test_words_that_both_share_stay():
    shared = {"client.id": "gate", "fetch.max.bytes": "1000000"}
    assert java_options(shared) == shared


def test_a_login():
    assert java_options({**LOGIN, "security.protocol": "sasl_ssl"}) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="me" password="hush";',
    }


def test_the_other_word_for_a_mechanism_and_the_other_module():
    options = java_options(
        {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": "hush"}
    )
    assert options["sasl.mechanism"] == "SCRAM-SHA-512"
    assert ".scram.ScramLoginModule required" in options["sasl.jaas.config"]


def test_a_password_cannot_end_its_own_quotes():
    options = java_options({**LOGIN, "sasl.password": 'a"b\\c; x'})
    assert options["sasl.jaas.config"].endswith('password="a\\"b\\\\c; x";')


@pytest.mark.parametrize("name", LOGIN)
def test_a_login_is_whole_or_not_there(name):
    rest = {one: value for one, value in LOGIN.items() if one != name}
    assert "sasl.mechanism, sasl.username and sasl.password" in refused(rest)


def test_a_mechanism_that_is_not_known_is_refused():
    assert "PLAIN, SCRAM-SHA-256" in refused({**LOGIN, "sasl.mechanism": "GSSAPI"})


def test_certificates_are_read_from_files_or_taken_as_they_are(tmp_path):
    authorities, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    authorities.write_text(CERTIFICATE)
    key.write_text(KEY)
    options = java_options(
        {
            "ssl.ca.location": str(authorities),
            "ssl.certificate.pem": CERTIFICATE,
            "ssl.key.location": str(key),
            "ssl.key.password": "hush",
        }
    )
    assert options == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": KEY,
        "ssl.key.password": "hush",
    }


def test_a_file_that_is_not_there_is_named_by_its_option(tmp_path):
    assert "ssl.ca.location" in refused({"ssl.ca.location": str(tmp_path / "none.pem")})


def test_a_keystore_of_java_is_no_pem(tmp_path):
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    assert "cannot be read as PEM" in refused({"ssl.ca.location": str(store)})


@pytest.mark.parametrize("name", ["ssl.certificate.pem", "ssl.key.pem"])
def test_certificate_and_key_belong_together(name):
    text = CERTIFICATE if "certificate" in name else KEY
    assert "belong together" in refused({name: text})


@pytest.mark.parametrize(
    "key", ["hush", KEY.replace("PRIVATE", "RSA PRIVATE"), KEY.replace("PRIVATE", "EC PRIVATE")]
)
def test_a_key_that_java_cannot_read_is_refused(key):
    error_text = refused({"ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": key})
    assert "PKCS#8" in error_text


@pytest.mark.parametrize(("ours", "theirs"), [("none", ""), ("https", "https")])
def test_how_the_brokers_name_is_checked(ours, theirs):
    name = "ssl.endpoint.identification.algorithm"
    assert java_options({name: ours}) == {name: theirs}


@pytest.mark.parametrize("name", sorted(KAFKA_OPTIONS))
def test_no_option_that_settings_allow_is_dropped_in_silence(name, tmp_path):
    other = KEY.replace("hush", "other")
    file = tmp_path / "other.pem"
    file.write_text(other)
    without = {one: value for one, value in WHOLE.items() if one != name}
    if name == "sasl.mechanisms":
        del without["sasl.mechanism"]
    value = "SCRAM-SHA-256"
    if name.endswith(".pem"):
        value = other
    if name.endswith(".location"):
        without.pop(name.replace(".location", ".pem"), None)
        value = str(file)
    assert java_options({**without, name: value}) != java_options(WHOLE)
