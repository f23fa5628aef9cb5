"""Principals of client certificates: subjects as text, and the rules of KIP-371."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.config.certificate import UnreadableCertificateError, ends_at_s, subject_of
from semel_broker.config.loading import ConfigError, load
from semel_broker.config.principal_rules import NoPrincipalError, PrincipalRules

KEY = ec.generate_private_key(ec.SECP256R1())
CN, OU, O, C = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.ORGANIZATION_NAME, NameOID.COUNTRY_NAME  # noqa: E741


def certificate(*attributes: tuple[x509.ObjectIdentifier, str], end: datetime.datetime | None = None) -> bytes:
    """A self-signed certificate with these attributes, the most general one first, as usual. `end`: not a day later."""
    name = x509.Name([x509.NameAttribute(oid, text) for oid, text in attributes])
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(CN, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(end or begin + datetime.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.DER)


DUKE = certificate((C, "DE"), (O, "Example"), (OU, "Billing"), (CN, "Duke"))


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "User:CN=Duke,OU=Billing,O=Example,C=DE"),
        ("", "User:CN=Duke,OU=Billing,O=Example,C=DE"),
        ("RULE:^CN=(.*?),OU=Billing.*$/$1/", "User:Duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),.*$/$1@$2.$3/L", "User:duke@billing.example"),
        ("RULE:^CN=(.*?),.*$/$1/U", "User:DUKE"),
        ("RULE:^CN=(.*?),OU=Sales.*$/$1/, RULE:^CN=(.*?),OU=Billing.*$/billing-$1/L , DEFAULT", "User:billing-duke"),
        ("RULE:^CN=nobody$/x/,DEFAULT", "User:CN=Duke,OU=Billing,O=Example,C=DE"),
        (r"RULE:^.*O=(\w+),.*$/a\/b\$1-$1/", "User:a/b$1-Example"),
    ],
)
def test_the_first_rule_that_matches_names_the_principal(rules: str, principal: str) -> None:
    assert PrincipalRules(rules).principal(DUKE) == principal


def test_a_rule_must_match_the_whole_subject() -> None:
    with pytest.raises(NoPrincipalError, match=r"no rule .* matches the subject CN=Duke,OU=Billing"):
        PrincipalRules("RULE:CN=Duke/x/").principal(DUKE)


def test_a_client_without_a_certificate_is_anonymous() -> None:
    assert PrincipalRules("RULE:.*/x/").principal(None) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("RULE:^CN=(.*$/$1/", "not a regular expression"),
        ("RULE:^CN=(.*)$/$2/", "names group 2"),
        ("RULE:^CN=.*$", "neither DEFAULT nor RULE"),
        ("RULE:a/b/DEFAULT", "a comma is missing"),
        ("OTHER", "neither DEFAULT nor RULE"),
    ],
)
def test_malformed_rules_are_refused(rules: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"ssl.principal.mapping.rules = .*{words}"):
        PrincipalRules(rules)
    with pytest.raises(ConfigError, match=words):
        load(overrides=["listeners=SSL://h:1", "ssl.keystore.location=f", f"ssl.principal.mapping.rules={rules}"])


@pytest.mark.parametrize(
    ("attributes", "subject"),
    [
        ([(CN, 'a,b+c"d\\e<f>g;h')], r"CN=a\,b\+c\"d\\e\<f\>g\;h"),
        ([(CN, "#1 ")], r"CN=\#1\ "),
        ([(CN, "a #1"), (O, "k=v")], r"O=k\=v,CN=a \#1"),
        ([(CN, "  two spaces  ")], "CN=\\ \\ two spaces\\ \\ "),
        ([(CN, "  ")], "CN=\\ \\ "),
        ([(CN, "a\0b")], r"CN=a\00b"),
        ([(O, "Müller"), (CN, "é")], "CN=é,O=Müller"),
        ([(CN, "a,O=admin")], r"CN=a\,O\=admin"),
        ([(NameOID.DOMAIN_COMPONENT, "example"), (NameOID.USER_ID, "u")], "UID=u,DC=example"),
        ([(NameOID.EMAIL_ADDRESS, "a@b"), (CN, "c")], "CN=c,1.2.840.113549.1.9.1=#1603614062"),
        ([], ""),
    ],
)
def test_subjects_are_written_as_java_writes_rfc_2253(
    attributes: list[tuple[x509.ObjectIdentifier, str]], subject: str
) -> None:
    assert subject_of(certificate(*attributes)) == subject


@given(st.integers(0, len(DUKE) - 1), st.binary(max_size=4))
def test_damaged_certificates_have_a_subject_or_an_error(at: int, junk: bytes) -> None:
    for damaged in (DUKE[:at], DUKE[:at] + junk + DUKE[at + len(junk) :]):
        try:
            assert isinstance(subject_of(damaged), str)
        except UnreadableCertificateError:
            pass
        try:
            assert isinstance(ends_at_s(damaged), int)
        except UnreadableCertificateError:
            pass


@pytest.mark.parametrize(
    "end", [datetime.datetime(year, 3, 1, 4, 5, 6, tzinfo=datetime.UTC) for year in (2026, 2049, 2050, 3000)]
)
def test_the_end_of_a_certificate_is_read(end: datetime.datetime) -> None:
    """Until 2049 its year has two digits, then four."""
    assert ends_at_s(certificate((CN, "c"), end=end)) == end.timestamp()


def test_an_unreadable_certificate_has_no_principal() -> None:
    with pytest.raises(NoPrincipalError, match="cannot be read"):
        PrincipalRules("DEFAULT").principal(DUKE[:40])
