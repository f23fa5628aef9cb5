"""sasl.jaas.config gives user and password as Kafka's Java client reads them, and its text is never shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel._config.jaas import credentials
from semel.errors import KafkaConfigurationError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f'{PLAIN} required username="alice" password="hush";', ("alice", "hush")),
        (f"{SCRAM} required username='alice' password='hu;s=h';", ("alice", "hu;s=h")),
        (f'  {PLAIN}\n  required\n  username = "alice"\n  password="hush" ;\n', ("alice", "hush")),
        (f"{PLAIN} required username=alice password=hush serviceName=kafka;", ("alice", "hush")),
        (rf'{PLAIN} required username="a\"b\\c" password="\n\101\7x";', ('a"b\\c', "\nA\x07x")),
        (f'{PLAIN} requisite username="ä é" password=" ";', ("ä é", " ")),
        (f'{SCRAM} required username="alice" password="hush" tokenauth="false";', ("alice", "hush")),
    ],
)
def test_user_and_password_are_read(text: str, found: tuple[str, str]) -> None:
    assert credentials(text, "PLAIN" if PLAIN in text else "SCRAM-SHA-256") == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write one login module"),
        (f'{PLAIN} required username="alice" password="hush"', "and a semicolon"),
        (f'{PLAIN} required username="alice" password="hush"; {PLAIN} required;', "write one login module"),
        (f'{PLAIN} required username="alice" password="hush;', "a quote is not closed"),
        (f'{PLAIN} required username="alice";', "needs the options username and password"),
        (f'{PLAIN} required username="alice" password="";', "needs the options username and password"),
        (f'{PLAIN} required username "alice" password "hush";', "name="),
        (f'{PLAIN} required username="alice" username="bob" password="hush";', "each once"),
        (f'{SCRAM} required username="alice" password="hush" tokenauth=true;', "delegation tokens"),
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "Kerberos"),
        (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientSecret='hush';",
            "sasl_oauth_token_provider",
        ),
        ("com.sun.security.auth.module.JndiLoginModule required user.provider.url='hush';", "use one of"),
    ],
)
def test_another_text_is_refused_without_showing_it(text: str, said: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        credentials(text, "PLAIN" if SCRAM not in text else "SCRAM-SHA-512")
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "alice" not in str(caught.value)


def test_the_module_of_another_mechanism_is_refused() -> None:
    text = f"{SCRAM} required username=alice password=hush;"
    assert credentials(text, "SCRAM-SHA-512") == ("alice", "hush")
    with pytest.raises(
        KafkaConfigurationError, match=r"is for SCRAM-SHA-256 and SCRAM-SHA-512, and sasl\.mechanism is"
    ):
        credentials(text, "PLAIN")


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"{PLAIN} required {text};", f'{PLAIN} required username="{text}" password="x";'):
        try:
            credentials(whole, "PLAIN")
        except KafkaConfigurationError:
            pass
