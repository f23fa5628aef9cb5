"""EDGE: runs Kafka's command line tools and kcat against listeners with TLS and SASL, ACLs, users and quotas."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cryptography import x509

from tools.strangers import issuer, script

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = f"{TOOLS}.AclCommand"
PERFORMANCE = f"{TOOLS}.ProducerPerformance"
PRODUCER = f"{TOOLS}.ConsoleProducer"
CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
SECURITY = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "mTLS")
TOOL_TIMEOUT_S = 120
VALUES = [str(number) for number in range(50)]


class ToolLogin:
    """A client's way to connect: a listener, and a properties file for the tools."""

    def __init__(self, name: str, listener: str, **settings: str) -> None:
        self.address = script.listener(listener)
        self.settings = {
            "bootstrap.servers": self.address,
            "security.protocol": listener,
            "request.timeout.ms": "20000",
            "default.api.timeout.ms": "30000",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        if listener.endswith("SSL"):
            self.settings["ssl.truststore.type"] = "PEM"
            self.settings.setdefault("ssl.truststore.location", str(script.security() / "ca.pem"))
        self.file = script.scratch() / f"{name}.properties"
        self.file.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))


def with_password(mechanism: str, user: str, password: str, listener: str = "SASL_SSL") -> ToolLogin:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    jaas = f'{SECURITY}.{module} required username="{user}" password="{password}";'
    return ToolLogin(f"{user}-{mechanism}-{password}", listener, sasl_mechanism=mechanism, sasl_jaas_config=jaas)


def with_token(subject: str, audience: str = issuer.AUDIENCE) -> ToolLogin:
    file = script.scratch() / f"{subject}-{audience}.jwt"
    file.write_text(issuer.token(script.security(), subject, audience))
    bearer = f"{SECURITY}.oauthbearer"
    return ToolLogin(
        file.stem,
        "SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f"{bearer}.OAuthBearerLoginModule required;",
        sasl_login_callback_handler_class=f"{bearer}.OAuthBearerLoginCallbackHandler",
        sasl_oauthbearer_token_endpoint_url=file.as_uri(),
    )


def with_certificate() -> ToolLogin:
    file = script.security() / "client.pem"
    return ToolLogin("certificate", "SSL", ssl_keystore_type="PEM", ssl_keystore_location=str(file))


def principal_of(file: Path) -> str:
    """The subject of a certificate, as Java writes it: with a backslash before each `#`."""
    return x509.load_pem_x509_certificate(file.read_bytes()).subject.rfc4514_string().replace("#", "\\#")


class AuthenticatedTools:
    """Runs the tools by class name, as a user."""

    def __init__(self, class_path: str) -> None:
        self.class_path = class_path
        self.admin = with_password("SCRAM-SHA-512", "admin", "admin-secret")

    def run(
        self, name: str, *words: str, login: ToolLogin | None = None, stdin: str = "", status: int | None = 0
    ) -> str:
        """Return the output of a tool; without a login, as User:admin."""
        login = login or self.admin
        url = login.settings.get("sasl.oauthbearer.token.endpoint.url", "")
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        options += [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"] if url else []
        where = ["--bootstrap-server", login.address, "--command-config", str(login.file)]
        command = ["java", *options, "-cp", self.class_path, name, *where, *words]
        return script.output(command, TOOL_TIMEOUT_S, status=status, stdin=stdin)

    def topic(self, name: str) -> str:
        self.run(TOPICS, "--create", "--topic", name, "--partitions", "1", "--replication-factor", "1")
        return name

    def acl(self, *words: str) -> str:
        return self.run(ACLS, *words)

    def produce(self, topic: str, login: ToolLogin, values: list[str] = VALUES) -> str:
        """Return the output of the console producer: errors, if it cannot send."""
        text = "".join(f"{each}\n" for each in values)
        return self.run(PRODUCER, "--topic", topic, login=login, stdin=text, status=None)

    def consume(self, topic: str, login: ToolLogin, group: str, count: int = len(VALUES)) -> str:
        words = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(count)]
        return self.run(CONSUMER, *words, "--timeout-ms", "30000", login=login, status=None)


def require(holds: object, message: object) -> None:
    if not holds:
        raise AssertionError(str(message))


def mechanisms(tools: AuthenticatedTools) -> None:
    logins: dict[str, Callable[[], ToolLogin]] = {
        **{each: partial(with_password, each, "alice", "alice-secret") for each in MECHANISMS[:3]},
        "OAUTHBEARER": partial(with_token, "alice"),
        "mTLS": with_certificate,
    }
    for name, login in logins.items():
        principal = principal_of(script.security() / "client.pem") if name == "mTLS" else "alice"
        with script.test(f"{name}: console producer, consumer in a group, and a transactional producer"):
            topic = tools.topic(f"mechanism-{name}")
            made = login()
            text = tools.produce(topic, made)
            require("TopicAuthorizationException" in text or "Not authorized" in text, text[-300:])
            user = ["--allow-principal", f"User:{principal}"]
            tools.acl("--add", "--force", *user, "--producer", "--topic", topic, "--transactional-id", topic)
            tools.acl("--add", "--force", *user, "--consumer", "--topic", topic, "--group", topic)
            require("ERROR" not in (text := tools.produce(topic, made)), text)
            text = tools.consume(topic, made, topic)
            require([each for each in text.splitlines() if each.isdigit()] == VALUES, text)
            words = ["--topic", topic, "--num-records", "500", "--record-size", "100", "--throughput", "-1"]
            words += ["--transactional-id", topic, "--transaction-duration-ms", "100"]
            require("500 records sent" in (text := tools.run(PERFORMANCE, *words, login=made)), text)


def refusals(tools: AuthenticatedTools) -> None:
    for mechanism in MECHANISMS[:3]:
        with script.test(f"{mechanism}: a wrong password is refused"):
            login = with_password(mechanism, "alice", "wrong")
            text = tools.run(TOPICS, "--list", login=login, status=1)
            require("SaslAuthenticationException" in text, text)
    with script.test("OAUTHBEARER: a token for another service is refused"):
        text = tools.run(TOPICS, "--list", login=with_token("alice", "other"), status=1)
        require("SaslAuthenticationException" in text, text)
    with script.test("TLS: a broker with the certificate of another CA is refused"):
        other = script.scratch() / "other"
        shutil.copytree(script.security(), other)
        command = [sys.executable, "-m", "semel", "cert", "dev", str(other / "ca")]
        script.output(command, TOOL_TIMEOUT_S)
        login = ToolLogin("other", "SSL", ssl_truststore_location=str(other / "ca" / "ca.pem"))
        text = tools.run(TOPICS, "--list", login=login, status=1)
        require("SslAuthenticationException" in text or "SSL handshake failed" in text, text)
    with script.test("SCRAM without TLS: a listener SASL_PLAINTEXT"):
        login = with_password("SCRAM-SHA-256", "admin", "admin-secret", "SASL_PLAINTEXT")
        tools.run(TOPICS, "--list", login=login)


def acls(tools: AuthenticatedTools) -> None:
    alice = with_password("SCRAM-SHA-256", "alice", "alice-secret")
    of_alice = ["--allow-principal", "User:alice"]
    with script.test("acls: add, list, remove"):
        topic = tools.topic("listed")
        tools.acl("--add", *of_alice, "--operation", "Read", "--operation", "Write", "--topic", topic)
        text = tools.acl("--list", "--topic", topic)
        for operation in ("READ", "WRITE"):
            line = rf"\(principal=User:alice, host=\*, operation={operation}, permissionType=ALLOW\)"
            require(re.search(line, text), text)
        require("User:alice" in tools.acl("--list", "--principal", "User:alice"), "not listed by principal")
        require("User:alice" not in tools.acl("--list", "--principal", "User:bob", "--topic", topic), "of another")
        tools.acl("--remove", "--force", *of_alice, "--operation", "Read", "--topic", topic)
        text = tools.acl("--list", "--topic", topic)
        require("operation=WRITE" in text and "operation=READ" not in text, text)
        tools.acl("--remove", "--force", "--topic", topic)
        require("User:alice" not in tools.acl("--list", "--topic", topic), "still listed")
    with script.test("acls: a prefixed one allows, a removed one does not"):
        topic = tools.topic("shop-orders")
        prefix = ["--topic", "shop-", "--resource-pattern-type", "prefixed"]
        tools.acl("--add", *of_alice, "--operation", "Write", *prefix)
        require("ERROR" not in (text := tools.produce(topic, alice)), text)
        text = tools.acl("--list", "--topic", topic, "--resource-pattern-type", "match")
        require("patternType=PREFIXED" in text, text)
        tools.acl("--remove", "--force", *prefix)
        require("TopicAuthorizationException" in (text := tools.produce(topic, alice)), text)
    with script.test("acls: a denied one wins over the wildcard"):
        topic = tools.topic("denied")
        tools.acl("--add", "--allow-principal", "User:*", "--operation", "All", "--topic", "*")
        require("ERROR" not in (text := tools.produce(topic, alice)), text)
        tools.acl("--add", "--deny-principal", "User:alice", "--operation", "Write", "--topic", topic)
        require("TopicAuthorizationException" in (text := tools.produce(topic, alice)), text)
        tools.acl("--remove", "--force", "--topic", "*")
        tools.acl("--remove", "--force", "--topic", topic)
    with script.test("acls: of a host, of cluster, group and transactional id"):
        tools.acl("--add", *of_alice, "--allow-host", "192.0.2.1", "--operation", "Create", "--cluster")
        text = tools.acl("--list", "--cluster")
        require("host=192.0.2.1, operation=CREATE" in text, text)
        words = ["--topic", "refused", "--partitions", "1"]
        text = tools.run(TOPICS, "--create", *words, login=alice, status=1)
        require("uthoriz" in text, text)
        tools.acl("--remove", "--force", "--cluster")
        tools.acl("--add", *of_alice, "--operation", "Describe", "--group", "g", "--transactional-id", "t")
        text = tools.acl("--list", "--principal", "User:alice")
        require("resourceType=GROUP, name=g" in text and "resourceType=TRANSACTIONAL_ID, name=t" in text, text)
    with script.test("acls: a user without rights may not list or change them"):
        for words in (["--list"], ["--add", *of_alice, "--operation", "All", "--topic", "*"]):
            text = tools.run(ACLS, *words, login=alice, status=None)
            require("ClusterAuthorizationException" in text, text)


def users(tools: AuthenticatedTools) -> None:
    carol = ["--entity-type", "users", "--entity-name", "carol"]
    listing = [TOPICS, "--list"]
    for mechanism in MECHANISMS[1:3]:
        with script.test(f"configs: {mechanism} of a user: add, describe, change, delete"):
            for password in ("first", "second"):
                tools.run(
                    CONFIGS, *carol, "--alter", "--add-config", f"{mechanism}=[iterations=8192,password={password}]"
                )
                tools.run(*listing, login=with_password(mechanism, "carol", password))
            require(f"{mechanism}=iterations=8192" in (text := tools.run(CONFIGS, *carol, "--describe")), text)
            text = tools.run(*listing, login=with_password(mechanism, "carol", "first"), status=1)
            require("SaslAuthenticationException" in text, text)
            tools.run(CONFIGS, *carol, "--alter", "--delete-config", mechanism)
            require(mechanism not in (text := tools.run(CONFIGS, *carol, "--describe")), text)
            text = tools.run(*listing, login=with_password(mechanism, "carol", "second"), status=1)
            require("SaslAuthenticationException" in text, text)
    with script.test("configs: all users are described; iterations below the least number are refused"):
        text = tools.run(CONFIGS, "--entity-type", "users", "--describe")
        require("'alice'" in text and "'admin'" in text and "secret" not in text, text)
        words = [*carol, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=100,password=x]"]
        require("terations" in (text := tools.run(CONFIGS, *words, status=1)), text)


def quotas(tools: AuthenticatedTools) -> None:
    entities = {
        "a user": ["--entity-type", "users", "--entity-name", "alice"],
        "the default user": ["--entity-type", "users", "--entity-default"],
        "a client": ["--entity-type", "clients", "--entity-name", "app"],
        "the default client": ["--entity-type", "clients", "--entity-default"],
        "a user's client": [
            *("--entity-type", "users", "--entity-name", "alice"),
            *("--entity-type", "clients", "--entity-name", "app"),
        ],
    }
    for name, entity in entities.items():
        with script.test(f"configs: quotas of {name}: add, describe, delete"):
            wish = "producer_byte_rate=1000000,consumer_byte_rate=2000000"
            wish += ",request_percentage=50,controller_mutation_rate=10"
            tools.run(CONFIGS, *entity, "--alter", "--add-config", wish)
            text = tools.run(CONFIGS, *entity, "--describe")
            require(re.search(r"producer_byte_rate=1000000(\.0)?\b", text), text)
            require(re.search(r"request_percentage=50(\.0)?\b", text), text)
            tools.run(CONFIGS, *entity, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
            text = tools.run(CONFIGS, *entity, "--describe")
            require("consumer_byte_rate" in text and "producer_byte_rate" not in text, text)
            tools.run(CONFIGS, *entity, "--alter", "--delete-config", "consumer_byte_rate,controller_mutation_rate")
            require("rate" not in (text := tools.run(CONFIGS, *entity, "--describe")), text)
    for name, words in (("an address", ["--entity-name", "192.0.2.7"]), ("the default address", ["--entity-default"])):
        with script.test(f"configs: connections of {name}: add, describe, delete"):
            entity = ["--entity-type", "ips", *words]
            tools.run(CONFIGS, *entity, "--alter", "--add-config", "connection_creation_rate=77")
            text = tools.run(CONFIGS, *entity, "--describe")
            require(re.search(r"connection_creation_rate=77(\.0)?\b", text), text)
            tools.run(CONFIGS, *entity, "--alter", "--delete-config", "connection_creation_rate")
            require("connection_creation_rate=77" not in tools.run(CONFIGS, *entity, "--describe"), "still there")
    with script.test("a producer above its quota is throttled, and sends all"):
        entity = ["--entity-type", "users", "--entity-name", "admin"]
        tools.run(CONFIGS, *entity, "--alter", "--add-config", "producer_byte_rate=100000")
        topic = tools.topic("throttled")
        words = ["--topic", topic, "--num-records", "1500", "--record-size", "1000", "--throughput", "-1"]
        text = tools.run(PERFORMANCE, *words, "--print-metrics")
        require("1500 records sent" in text, text[:300])
        throttles = [float(each) for each in re.findall(r"produce-throttle-time-max\S*\s*:\s*([\d.]+)", text)]
        require(throttles and max(throttles) > 0, f"throttle times: {throttles}")
        tools.run(CONFIGS, *entity, "--alter", "--delete-config", "producer_byte_rate")


def kcat(_: AuthenticatedTools) -> None:
    """Run kcat, where it is installed."""
    logins = {
        **{each: ["sasl.mechanisms=" + each] for each in MECHANISMS[:3]},
        "mTLS": ["ssl.certificate.location={}/client.crt", "ssl.key.location={}/client.key"],
    }
    for name, words in logins.items():
        with script.test(f"kcat: {name}: produce and consume"):
            if shutil.which("kcat") is None:
                raise script.NothingToRunError("kcat is not installed")
            protocol = "SSL" if name == "mTLS" else "SASL_SSL"
            login = [f"security.protocol={protocol}", "ssl.ca.location={}/ca.pem", *words]
            login += [] if name == "mTLS" else ["sasl.username=alice", "sasl.password=alice-secret"]
            options = [word for each in login for word in ("-X", each.format(script.security()))]
            command = ["kcat", "-b", script.listener(protocol), "-t", f"mechanism-{name}", *options]
            script.output([*command, "-P"], TOOL_TIMEOUT_S, stdin="kettle\n")
            text = script.output([*command, "-C", "-o", "-1", "-e", "-q"], TOOL_TIMEOUT_S)
            require(text.strip() == "kettle", text)


def main() -> None:
    pom = script.folder().parent / "kafka-tools" / "pom.xml"
    lib = script.jars(pom, "lib", kafka_version=script.pin("kafka-tools"))
    tools = AuthenticatedTools(f"{lib}/*")
    for part in (mechanisms, refusals, acls, users, quotas, kcat):
        part(tools)


script.run(main)
