"""The changes that the page can make, by name. The body of each is JSON.

With `dry_run` the answer has the changes that would be made (`ChangeAnswer`); without, they are made. The brokers check
the rights of the console's principal, and write the audit log (docs/audit.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from semel_console.writes import access, coordinated, topics

__all__ = ["WRITES", "Write"]


class Write(msgspec.Struct, frozen=True):
    """One change. body: the type of its JSON. work: gets an Admin, or a Producer if `needs_producer`, the body and the
    time in ms.
    """

    body: Any
    work: Callable[[Any, Any, int], Awaitable[object]]
    needs_producer: bool = False


WRITES: Mapping[str, Write] = {
    "abort-hanging": Write(coordinated.AbortHanging, coordinated.abort_hanging),
    "abort-transaction": Write(coordinated.AbortTransaction, coordinated.abort_transaction),
    "add-acl": Write(access.ChangeAcl, access.add_acl),
    "add-partitions": Write(topics.AddPartitions, topics.add_partitions),
    "alter-quotas": Write(access.AlterQuotas, access.alter_quotas),
    "alter-topic": Write(topics.AlterTopic, topics.alter_topic),
    "change-password": Write(access.SetPassword, access.change_password),
    "create-topic": Write(topics.CreateTopic, topics.create_topic),
    "create-user": Write(access.SetPassword, access.create_user),
    "delete-group": Write(coordinated.DeleteGroup, coordinated.delete_group),
    "delete-topic": Write(topics.DeleteTopic, topics.delete_topic),
    "delete-user": Write(access.DeleteUser, access.delete_user),
    "produce-record": Write(topics.ProduceRecord, topics.produce_record, needs_producer=True),
    "purge-topic": Write(topics.PurgeTopic, topics.purge_topic),
    "remove-acl": Write(access.ChangeAcl, access.remove_acl),
    "reset-offsets": Write(coordinated.ResetOffsets, coordinated.reset_offsets),
}
