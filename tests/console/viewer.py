"""A broker with users and an authorizer, and a console whose principal has few rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from console.conftest import SETTINGS
from console.shop import hang
from console.visitor import Visitor
from semel import Admin, NewTopic, Producer
from semel._command_line.client_settings import ClientSettings
from semel.admin import Acl, Operation, PatternType, Permission, ResourceType
from semel_broker.testing.in_process import EphemeralBroker
from semel_console.guard import ConsoleGuard
from semel_console.link import ClusterLink

VIEWER = "viewer"


def entry(kind: ResourceType, name: str, operation: Operation) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, f"User:{VIEWER}", "*", operation, Permission.ALLOW)


async def two_topics(broker: EphemeralBroker, *acls: Acl) -> None:
    """The viewer has these rights. Both topics have a committed transaction of `shop`, orders-0 a hanging one."""
    settings = broker.client_settings()
    async with Admin(**settings) as admin:
        await admin.create_topics([NewTopic("orders", 1), NewTopic("secrets", 1)])
        await admin.create_acls(acls)
    async with Producer(**settings, transactional_id="shop") as shop, shop.transaction():
        for topic in ("orders", "secrets"):
            await shop.send(topic, b"one", partition=0)
    hang(broker)
    broker.create_user(VIEWER, "its password")


@asynccontextmanager
async def seen_by(broker: EphemeralBroker, user: str) -> AsyncIterator[Visitor]:
    def opened() -> AbstractAsyncContextManager[Admin]:
        return ClientSettings(broker.client_settings("semel", user), {}).admin(SETTINGS, quiet=True)

    link = ClusterLink(opened)
    visitor = Visitor(link, ConsoleGuard(may_write=True))
    await visitor.enter()
    yield visitor
    await link.close()
