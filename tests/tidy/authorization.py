"""docs/authorization.md, made of the requirements of the handlers: `python -m tidy.authorization --write`."""

from __future__ import annotations

import sys
from pathlib import Path

from semel_broker.handlers import NEEDS
from semel_protocol.acls import OPERATIONS_OF, Operation, ResourceType
from semel_protocol.api import APIS

PAGE = Path(__file__).parents[2] / "docs/authorization.md"

HEAD = """# What each request requires

With `authorizer.class.name` set, a broker checks each request of a client against its ACLs before it does anything for
it: before records are decompressed, topics created or coordinators asked. The rules are Kafka's. Refused rows of a
request are answered with TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED; the other rows are done. Whether a topic exists
is not told.

`make map` writes this page from `NEEDS` in each file of `broker/semel_broker/handlers`, which the broker executes. A
test holds that every API is in it, that nothing is told and nothing changes without rights, and that exactly these
rights are enough.

| key | request | operation | on | for |
|---|---|---|---|---|
"""

TAIL = """
Requests between brokers are served at the listener for brokers alone, and need no ACL there. With TLS between
brokers, only the principals of `broker.principals` can connect to it ([security](security.md#between-brokers));
without, it belongs on a network of its own. Refusals and administrative operations can have an [audit log](audit.md).

## How a decision is made

1. A principal in `super.users` may do everything.
2. An ACL that denies the operation refuses it. `ALL` denies every operation, and the name `*` is every name.
3. An ACL that allows the operation allows it. Read, Write, Delete and Alter imply Describe, and AlterConfigs implies
   DescribeConfigs.
4. A resource that no ACL names is allowed if `allow.everyone.if.no.acl.found` says so.
5. Everything else is refused.

ACLs are in the store of the cluster. All brokers follow it. A change is in force a moment later, on open connections
too. Refusals are in the log as `not_authorized`, with the principal, its address, the operation, the resource and the
ACL that decided.

`semel acl add`, `list` and `remove` change ACLs, and so do Kafka's `kafka-acls` (tried with 4.3.0) and `semel.Admin`:

```sh
semel acl add --principal User:alice --allow write --topic flights
semel acl add --principal User:bob --allow read --topic flights --group board
semel acl add --principal User:alice --allow write --transactional-id shop- --prefixed
semel acl list --for --topic flights      # everything that applies to this topic
```

The principal of a client is its SASL user or the subject of its certificate ([security](security.md)). On a listener
without authentication it is `User:ANONYMOUS`; what tells clients apart there is their address (`--host`). Allow an
administrator's machine what it needs before you take `User:ANONYMOUS` out of
`super.users`.

## Operations of each type of resource

| resource | operations |
|---|---|
"""


def page() -> str:
    """The page."""
    rows = []
    for key, requirements in sorted(NEEDS.items()):
        needs = [need for requirement in requirements for need in requirement.needs]
        if not needs:
            rows.append(f"| {key} | {APIS[key].name} | none | | |")
        for at, (operation, kind, what) in enumerate(needs):
            first = f"{key} | {APIS[key].name}" if at == 0 else " | "
            rows.append(f"| {first} | {_words(operation)} | {_words(kind)} | {what.rstrip(':')} |")
    kinds = [
        f"| {_words(kind)} | {', '.join(sorted(_words(each) for each in operations))} |"
        for kind, operations in OPERATIONS_OF.items()
    ]
    return HEAD + "\n".join(rows) + "\n" + TAIL + "\n".join(kinds) + "\n"


def _words(value: Operation | ResourceType) -> str:
    return "".join(part.capitalize() for part in value.name.split("_"))


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
