"""A scripted broker that coordinates transaction groups as well; see FakeCoordinator."""

from __future__ import annotations

import msgspec
from client.fake_coordinator import ABORTED, COMMITTED, INIT, ONGOING, FakeCoordinator
from semel_protocol.errors import ErrorCode
from semel_protocol.hashes import group_of
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel_protocol.messages.k20001_begin_transaction_group import (
    BeginTransactionGroupRequest,
    BeginTransactionGroupResponse,
)
from semel_protocol.messages.k20002_decide_transaction_group import (
    DecideTransactionGroupRequest,
    DecideTransactionGroupResponse,
)
from semel_protocol.messages.k20003_describe_transaction_groups import (
    DescribeTransactionGroupsRequest,
    DescribeTransactionGroupsResponse,
    DescribeTransactionGroupsResponseGroup,
    DescribeTransactionGroupsResponseMember,
)
from semel_protocol.messages.k20004_forget_transaction_group import (
    ForgetTransactionGroupRequest,
    ForgetTransactionGroupResponse,
)

BEGIN, DECIDE, DESCRIBE_GROUPS, FORGET = 20001, 20002, 20003, 20004
OPEN, STEP_COMMITTED, STEP_ABORTED = "Open", "Committed", "Aborted"


class FakeGroup(msgspec.Struct):
    epoch: int = 0
    state: str = OPEN
    owner: str = ""
    token: str | None = None
    token_epoch: int = -1


class FakeGroups(FakeCoordinator):
    """`async with FakeGroups(version=2)`; `knows_groups=False`: a broker that is not semel's."""

    def __init__(self, version: int = 2, *, knows_groups: bool = True) -> None:
        super().__init__(version)
        self.groups: dict[str, FakeGroup] = {}
        self.step_of: dict[str, int] = {}
        for key, handler, refusal in (
            (INIT, self.init, lambda code: InitProducerIdResponse(error_code=code)),
            (BEGIN, self.begin, lambda code: BeginTransactionGroupResponse(error_code=code)),
            (DECIDE, self.decide, lambda code: DecideTransactionGroupResponse(error_code=code)),
            (DESCRIBE_GROUPS, self.describe_groups, None),
            (FORGET, self.forget, lambda code: ForgetTransactionGroupResponse(error_code=code)),
        ):
            self.answers[key] = self.troubled(key, handler, refusal)
        for key in (BEGIN, DECIDE, DESCRIBE_GROUPS, FORGET):
            self.versions.pop(key, None)
            if knows_groups:
                self.versions[key] = (0, 0)

    def begin(self, request: BeginTransactionGroupRequest) -> BeginTransactionGroupResponse:
        group = self.groups.setdefault(request.group, FakeGroup())
        group.epoch, group.state, group.owner = group.epoch + 1, OPEN, request.owner
        self.abort_open(request.group, f"step {group.epoch} was begun by {request.owner}")
        return BeginTransactionGroupResponse(
            group_epoch=group.epoch, decided_token=group.token, decided_epoch=group.token_epoch
        )

    def decide(self, request: DecideTransactionGroupRequest) -> DecideTransactionGroupResponse:
        group = self.groups.get(request.group)
        if group is None:
            return DecideTransactionGroupResponse(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        if request.committed and request.token == group.token:
            return DecideTransactionGroupResponse(already_decided=True, decided_epoch=group.token_epoch)
        if request.group_epoch != group.epoch:
            return DecideTransactionGroupResponse(
                error_code=ErrorCode.PRODUCER_FENCED, error_message=f"step {group.epoch} was begun by {group.owner}"
            )
        if group.state == STEP_ABORTED and not request.committed:
            return DecideTransactionGroupResponse(decided_epoch=group.epoch)
        if group.state != OPEN:
            return DecideTransactionGroupResponse(
                error_code=ErrorCode.INVALID_TXN_STATE, error_message=f"the step is {group.state}"
            )
        for each in request.transactions:
            txn = self.ids[each.transactional_id]
            if (txn.producer_id, txn.epoch) != (each.producer_id, each.producer_epoch) or txn.state != ONGOING:
                return DecideTransactionGroupResponse(
                    error_code=ErrorCode.PRODUCER_FENCED, error_message=f"{each.transactional_id} is fenced"
                )
        for each in request.transactions:
            txn = self.ids[each.transactional_id]
            self.finish(txn, commit=True)
            if self.version >= 2:
                txn.last_epoch, txn.epoch = txn.epoch, txn.epoch + 1
            txn.state = COMMITTED
        self.abort_open(request.group, "the step was decided")
        group.state = STEP_COMMITTED if request.committed else STEP_ABORTED
        if request.committed:
            group.token, group.token_epoch = request.token, group.epoch
        return DecideTransactionGroupResponse(decided_epoch=group.epoch)

    def forget(self, request: ForgetTransactionGroupRequest) -> ForgetTransactionGroupResponse:
        group = self.groups.get(request.group)
        if group is not None and group.state == OPEN:
            return ForgetTransactionGroupResponse(
                error_code=ErrorCode.INVALID_TXN_STATE, error_message="the step is open"
            )
        self.groups.pop(request.group, None)
        return ForgetTransactionGroupResponse()

    def abort_open(self, name: str, text: str) -> None:
        for member, txn in self.ids.items():
            if group_of(member) == name and txn.state == ONGOING:
                self.fence(member, text)
                txn.state = ABORTED

    def init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        name = request.transactional_id or ""
        if request.group_epoch >= 0:
            group = self.groups[group_of(name)]
            if (group.epoch, group.state) != (request.group_epoch, OPEN):
                return InitProducerIdResponse(
                    error_code=ErrorCode.PRODUCER_FENCED, error_message=f"step {group.epoch} was begun by {group.owner}"
                )
        self.step_of[name] = request.group_epoch
        return super().init(request)

    def check(self, name: str, producer_id: int, epoch: int, fenced: int = ErrorCode.PRODUCER_FENCED) -> int:
        step = self.step_of.get(name, -1)
        if step >= 0:
            group = self.groups[group_of(name)]
            if (group.epoch, group.state) != (step, OPEN):
                return fenced
        return super().check(name, producer_id, epoch, fenced)

    def describe_groups(
        self, request: DescribeTransactionGroupsRequest, code: int = 0
    ) -> DescribeTransactionGroupsResponse:
        names = sorted(self.groups) if request.groups is None else request.groups
        rows = []
        for name in names:
            group = self.groups.get(name)
            if code or group is None:
                code = code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                rows.append(DescribeTransactionGroupsResponseGroup(group=name, error_code=code))
                continue
            members = [
                DescribeTransactionGroupsResponseMember(
                    transactional_id=member, group_epoch=self.step_of[member], transaction_state=txn.state
                )
                for member, txn in self.ids.items()
                if group_of(member) == name
            ]
            rows.append(
                DescribeTransactionGroupsResponseGroup(
                    group=name,
                    group_epoch=group.epoch,
                    state=group.state,
                    owner=group.owner,
                    begin_time_ms=0,
                    last_update_time_ms=0,
                    decided_token=group.token,
                    decided_epoch=group.token_epoch,
                    members=members,
                )
            )
        return DescribeTransactionGroupsResponse(groups=rows)
