"""PURE: the kinds of requirements, of which the `NEEDS` of each handler are made.

A requirement checks a request and returns a `CheckedRequest`: the allowed part of the request and the functions that
add refused rows to its response, or the whole response if nothing is allowed. Refused rows never reach a handler, so
nothing is decoded, created or asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import msgspec
from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.api import API_OF
from semel_protocol.errors import ErrorCode
from semel_protocol.fields import LAST_VERSION, Array, first_version
from semel_protocol.refusals import refused, refused_row, rows_of
from semel_protocol.schema import Message

from semel_broker.authorization.access import Access
from semel_broker.context import RequestContext
from semel_broker.scheduling.turns import AT_ONCE, ELEMENTS_PER_STEP

REFUSAL_OF = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error code of a refusal, by the type of the resource."""

UNKNOWN_ID = "there is no topic with this id: refresh the metadata"

Complete = Callable[[Any], Message]
Steps = Generator[int, None, "CheckedRequest"]
Refuse = Callable[[Any, ErrorCode, str], Message]
"""Makes the response that refuses a request. The text is for the client."""


class CheckedRequest(msgspec.Struct, frozen=True):
    """`answer`: the response, if the handler is not to run. Otherwise it runs with `request`, and `complete` adds the
    refused rows to its response.
    """

    request: Message
    answer: Message | None = None
    complete: Sequence[Complete] = ()


class Requirement(Protocol):
    """`needs`: for the documents: (operation, type of resource, what it is needed for)."""

    @property
    def needs(self) -> Sequence[tuple[Operation, ResourceType, str]]: ...

    def check(self, request: Any, ctx: RequestContext, access: Access) -> Steps:
        """Check in steps: yields the number of resources that were looked at."""
        ...


Requirements = Sequence[Requirement]
"""What the principal must be allowed for one API, in the order of the checks. The first one that refuses the whole
request answers it. Empty: every client may ask."""

CheckSteps = Generator[int, None, tuple[Message, Message | None, list[Complete]]]
"""They return the request, the response if the handler is not to run, and what completes the handler's response."""


def check_all(request: Any, ctx: RequestContext, access: Access, requirements: Requirements) -> CheckSteps:
    """Check one requirement after the other, in steps. The first response of a refusal is the response."""
    complete: list[Complete] = []
    for requirement in requirements:
        permitted = yield from requirement.check(request, ctx, access)
        if permitted.answer is not None:
            answer = permitted.answer
            for each in complete:
                answer = each(answer)
            return permitted.request, answer, []
        request = permitted.request
        complete += permitted.complete
    return request, None, complete


class RequestRequirement(msgspec.Struct, frozen=True):
    """One resource for the whole request. `name`: its name; None: nothing is required of this request."""

    operation: Operation
    kind: ResourceType
    name: Callable[[Any], str | None]
    refuse: Refuse = refused

    @property
    def needs(self) -> Sequence[tuple[Operation, ResourceType, str]]:
        return [(self.operation, self.kind, "")]

    def check(self, request: Any, ctx: RequestContext, access: Access) -> Steps:
        yield 1
        name = self.name(request)
        if name is None or access.allows(self.operation, self.kind, name):
            return CheckedRequest(request)
        why = access.refusal(self.operation, self.kind, name)
        return CheckedRequest(request, self.refuse(request, REFUSAL_OF[self.kind], why))


def on_cluster(operation: Operation, refuse: Refuse = refused) -> RequestRequirement:
    """An operation on the cluster."""
    return RequestRequirement(operation, ResourceType.CLUSTER, lambda request: CLUSTER_NAME, refuse)


def on_group(operation: Operation) -> RequestRequirement:
    """An operation on the group of the request."""
    return RequestRequirement(operation, ResourceType.GROUP, lambda request: request.group_id)


def on_transactional_id(operation: Operation, refuse: Refuse = refused) -> RequestRequirement:
    """An operation on the transactional id of the request, if it has one."""
    return RequestRequirement(
        operation, ResourceType.TRANSACTIONAL_ID, lambda request: request.transactional_id, refuse
    )


class RowsRequirement(msgspec.Struct, frozen=True):
    """A resource for each row of the request: `rows` is the field with the rows (None in it: all resources).

    `answers`: the response's field of rows, which are of class `row`. `named`: the name in a row of the response;
    needed where a request can ask for all resources. `by_id_from`: from this version on a row has the id of a topic
    instead of its name. A row whose id no topic has is answered here with UNKNOWN_TOPIC_ID: when the handler looks, the
    topic may exist, and the right for it was not checked.
    """

    operation: Operation
    kind: ResourceType
    rows: str
    name: Callable[[Any], str]
    answers: str
    row: type[Message]
    response: type[Message]
    by_id_from: int
    named: Callable[[Any], str] | None = None

    @property
    def needs(self) -> Sequence[tuple[Operation, ResourceType, str]]:
        return [(self.operation, self.kind, "each row")]

    def check(self, request: Any, ctx: RequestContext, access: Access) -> Steps:
        rows = getattr(request, self.rows)
        if rows is None:
            yield 1
            assert self.named is not None, "no request of this API asks for all"
            return CheckedRequest(
                request,
                complete=[VisibleRowsRequirement(self.operation, self.kind, self.answers, self.named).only(access)],
            )
        has_ids = ctx.api_version >= self.by_id_from
        refused_rows: list[Message] = []
        allowed: list[Any] = []
        for row in rows:
            yield 1
            name = ctx.broker.topics.name_of(row.topic_id) if has_ids else self.name(row)
            if name is None:
                refused_rows.append(refused_row(self.row, row, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID))
            elif access.allows(self.operation, self.kind, name):
                allowed.append(row)
            else:
                why = access.refusal(self.operation, self.kind, name)
                refused_rows.append(refused_row(self.row, row, REFUSAL_OF[self.kind], why))
        if not refused_rows:
            return CheckedRequest(request)
        complete = adding(self.answers, refused_rows)
        setattr(request, self.rows, allowed)
        return CheckedRequest(request, None if allowed else complete(self.response()), [complete])


def on_each(
    operation: Operation,
    kind: ResourceType,
    request: type[Message],
    name: Callable[[Any], str] = lambda row: row,
    named: Callable[[Any], str] | None = None,
) -> RowsRequirement:
    """A resource for each row of the request. `name`: of a row; a row that is a text is the name itself.

    The arrays of request and response, and the version from which a row names a topic by id, follow from the messages.
    """
    theirs, ours = rows_of(request)
    assert isinstance(theirs.type, Array)
    assert isinstance(ours.type, Array)
    row, element = theirs.type.element, ours.type.element
    assert isinstance(element, type)
    assert issubclass(element, Message)
    by_id_from = first_version(row, "topic_id") if isinstance(row, type) else LAST_VERSION + 1
    response = API_OF[request].response
    return RowsRequirement(operation, kind, theirs.name, name, ours.name, element, response, by_id_from, named)


def on_topics(operation: Operation, request: type[Message]) -> RowsRequirement:
    """A topic for each row of the request."""
    return on_each(operation, ResourceType.TOPIC, request, topic_name, topic_name)


def topic_name(row: Any) -> str:
    """The name of the topic of a row. The field is `topic` or `name`."""
    name: str = row.name if hasattr(row, "name") else row.topic
    return name


def adding(answers: str, rows: Sequence[Message]) -> Complete:
    """Make what completes a response with more rows."""

    def complete(response: Any) -> Message:
        setattr(response, answers, [*(getattr(response, answers) or ()), *rows])
        made: Message = response
        return made

    return complete


class VisibleRowsRequirement(msgspec.Struct, frozen=True):
    """Rows of the response that only principals with the right see; others are left out, so existence is not told.

    `unless_cluster`: this operation on the cluster shows all of them.
    """

    operation: Operation
    kind: ResourceType
    answers: str
    name: Callable[[Any], str]
    unless_cluster: Operation | None = None

    @property
    def needs(self) -> Sequence[tuple[Operation, ResourceType, str]]:
        shown = [(self.operation, self.kind, "each row shown")]
        if self.unless_cluster is None:
            return shown
        return [*shown, (self.unless_cluster, ResourceType.CLUSTER, "instead: shows all")]

    def check(self, request: Any, ctx: RequestContext, access: Access) -> Steps:
        yield 1
        if self.unless_cluster is not None and access.allows_quietly(
            self.unless_cluster, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return CheckedRequest(request)
        return CheckedRequest(request, complete=[self.only(access)])

    def only(self, access: Access) -> VisibleRows:
        """The response without the rows that are not shown."""
        return VisibleRows(self, access)


class VisibleRows(msgspec.Struct, frozen=True):
    """A `Complete` that leaves out the rows that are not shown. A response may have very many: `steps` does the same in
    steps, and yields the number of array elements whose time a step takes."""

    shown: VisibleRowsRequirement
    access: Access

    def __call__(self, response: Any) -> Message:
        return AT_ONCE.run(self.steps(response))

    def steps(self, response: Any) -> Generator[int, None, Message]:
        """The response, in steps."""
        shown, rows = self.shown, []
        for row in getattr(response, shown.answers) or ():
            if self.access.allows_quietly(shown.operation, shown.kind, shown.name(row)):
                rows.append(row)
            yield ELEMENTS_PER_STEP
        setattr(response, shown.answers, rows)
        made: Message = response
        return made


def checked_by_handler(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """The steps of an API whose handler leaves out what the sender may not see, because it asks before it does work for
    a row."""
    yield 1
    return CheckedRequest(request)


class CustomRequirement(msgspec.Struct, frozen=True):
    """A requirement of its own form."""

    needs: Sequence[tuple[Operation, ResourceType, str]]
    steps: Callable[[Any, RequestContext, Access], Steps]

    def check(self, request: Any, ctx: RequestContext, access: Access) -> Steps:
        return self.steps(request, ctx, access)
