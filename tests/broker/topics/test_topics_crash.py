"""Topics against a model, with power cuts at any moment: answered requests hold, others are applied whole or not at
all.
"""

import asyncio
from typing import Any

from broker.crashable_broker import ROOT, CrashableBroker
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.topics.topics import Topics
from semel_protocol.errors import KafkaError
from semel_storage.log_directory import STRAY_SUFFIX

NAMES = st.sampled_from(["a", "b", "b.b", "b_b"])
State = dict[str, tuple[int, str]]
"""name -> (partitions, retention.ms as given)."""

Step = tuple[str, str, int]
STEPS = st.lists(
    st.tuples(
        st.tuples(st.sampled_from(["create", "delete", "grow", "alter"]), NAMES, st.integers(1, 4)),
        st.sampled_from([None, None, None, 0, 1, 2, 3, 5, 8, 13]),
    ),
    max_size=12,
)


def expected(state: State, step: Step) -> State:
    """The state after a step, by the model. A refused step changes nothing."""
    kind, name, number = step
    state = dict(state)
    if kind == "create":
        if name.replace(".", "_") not in [other.replace(".", "_") for other in state]:
            state[name] = (number, "")
    elif name in state:
        partitions, retention = state[name]
        match kind:
            case "delete":
                del state[name]
            case "grow":
                state[name] = (max(number, partitions), retention)
            case "alter":
                state[name] = (partitions, str(number))
    return state


async def perform(topics: Topics, step: Step) -> None:
    kind, name, number = step
    try:
        match kind:
            case "create":
                await topics.create(NewTopic(name=name, partitions=number))
            case "delete":
                await topics.delete(name)
            case "grow":
                await topics.add_partitions(name, number)
            case "alter":
                await topics.alter_configs(name, lambda _: {"retention.ms": str(number)})
    except KafkaError:
        pass  # the model knows as well as we do that this cannot be


def observed(topics: Topics) -> State:
    found = [topics.required(name) for name in topics.names()]
    return {topic.name: (topic.partition_count, topic.configs.get("retention.ms", "")) for topic in found}


async def until(task: "asyncio.Task[Any]", turns: int) -> bool:
    """Run the loop for so many turns. Returns whether the task is done."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return task.done()


async def power_cut(machine: CrashableBroker) -> Topics:
    """Drop everything in progress: tasks, unsynced bytes, unsynced names."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)
    return await machine.crash()


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_answered_changes_survive_a_power_cut_at_any_moment(steps: list[tuple[Step, int | None]]) -> None:
    async def run() -> None:
        machine = CrashableBroker()
        topics, state = await machine.start(), State()
        for step, turns_before_cut in steps:
            task = asyncio.ensure_future(perform(topics, step))
            if turns_before_cut is None:
                await task
                state = expected(state, step)
            else:
                answered = await until(task, turns_before_cut)
                topics = await power_cut(machine)
                allowed = [expected(state, step)] if answered else [expected(state, step), state]
                assert observed(topics) in allowed, (step, answered)
                state = observed(topics)
            assert observed(topics) == state, step
            for name in topics.names():  # every partition of every topic can be opened, and none of the others
                for index in range(state[name][0]):
                    topics.partition(name, index).open()
            assert not [name for name in machine.disk.listdir(ROOT) if name.endswith(STRAY_SUFFIX)]
            at_disk = machine.logs.partitions()
            assert at_disk == sorted((name, index) for name, row in state.items() for index in range(row[0]))

    asyncio.run(run())
