"""The search for a seed on which a checker fires without a safeguard, and none fires with it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import msgspec

from sim.ablations.ablation import ABLATIONS, Ablation, replaced, without
from sim.plan import RunPlan, draw
from sim.run import RunVerdict, run
from sim.shrink import Shrinker
from sim.workloads import ALWAYS_DRAWN

SEEDS_MAX = 1_000
WORDS_MAX = 200
MIX = tuple(name for name in ALWAYS_DRAWN if name != "groups")
"""The workloads for safeguards that name none. Transaction groups are left out: they have their own safeguards, and one
more kind would change the plans of all known seeds."""


class AblationFinding(msgspec.Struct, kw_only=True):
    """The result of the search for one ablation.

    `seed` -1: no checker fired. `runs`: number of runs without the safeguard. `caught_by`: checkers, or "failure" for
    an unexpected exception. `unclean`: seeds with an anomaly also with the safeguard on. `plan`: the plan of the seed,
    made smaller. `words`: the first anomaly.
    """

    name: str
    seed: int = -1
    runs: int = 0
    caught_by: list[str] = []
    plan: RunPlan | None = None
    words: str = ""
    unclean: list[int] = []

    @property
    def is_caught(self) -> bool:
        return self.seed >= 0


def plans(ablation: Ablation, first: int = 0, seeds_max: int = SEEDS_MAX) -> Iterator[RunPlan]:
    """The plans of `seeds_max` seeds from `first` on, without those that cannot show the safeguard."""
    return filter(ablation.shows, (plan_of(ablation, seed) for seed in range(first, first + seeds_max)))


def plan_of(ablation: Ablation, seed: int) -> RunPlan:
    """The plan of this seed for this safeguard."""
    if ablation.alone is not None:
        return RunPlan(seed=seed, workloads=[], brokers=ablation.brokers)
    return ablation.occasion(draw(seed, ablation.kinds or MIX, ablation.brokers))


def _run(ablation: Ablation, plan: RunPlan) -> RunVerdict:
    return run(plan) if ablation.alone is None else ablation.alone(plan.seed).judged()


def ablated(ablation: Ablation, plan: RunPlan) -> RunVerdict:
    """The verdict on a run without the safeguard."""
    with without(ablation):
        return _run(ablation, plan)


def whole(ablation: Ablation, plan: RunPlan) -> RunVerdict:
    """The verdict on the same run with all safeguards. The changes of the world (`given`) are the same."""
    with replaced(ablation.given):
        return _run(ablation, plan)


def compare(ablation: Ablation, plan: RunPlan) -> RunVerdict:
    """The verdict without the safeguard. An empty one if a checker fires with the safeguard, too."""
    verdict = ablated(ablation, plan)
    return verdict if verdict.is_clean or whole(ablation, plan).is_clean else RunVerdict(seed=plan.seed, digest="")


def fires(finding: AblationFinding) -> bool:
    """Whether the plan of a caught safeguard still shows it. If not, the plan is stale: the product has changed.

    Only the recorded checkers count: another one may fire because the ablation no longer fits the product.
    """
    ablation = ABLATIONS[finding.name]
    plan = finding.plan or plan_of(ablation, finding.seed)
    return not {*finding.caught_by}.isdisjoint(compare(ablation, plan).names)


def smaller(ablation: Ablation, plan: RunPlan, names: list[str], runs_max: int) -> RunPlan:
    """A shorter plan with the same finding. A stored plan stays valid when plans are drawn otherwise later."""
    judge = partial(compare, ablation)
    return Shrinker(plan, names, lambda text: None, runs_max, judge).shrink()


def find(
    name: str, first: int = 0, seeds_max: int = SEEDS_MAX, runs_max: int = SEEDS_MAX, shrinking_runs_max: int = 0
) -> AblationFinding:
    """Run seeds without the safeguard until a checker fires on a seed that is clean with it."""
    ablation = ABLATIONS[name]
    finding = AblationFinding(name=name)
    for plan in islice(plans(ablation, first, seeds_max), runs_max):
        finding.runs += 1
        verdict = ablated(ablation, plan)
        if verdict.is_clean:
            continue
        if whole(ablation, plan).is_clean:
            finding.seed, finding.caught_by, finding.words = plan.seed, verdict.names, _words(verdict)
            if shrinking_runs_max and ablation.alone is None:
                finding.plan = smaller(ablation, plan, verdict.names, shrinking_runs_max)
            break
        finding.unclean.append(plan.seed)
    return finding


def _words(verdict: RunVerdict) -> str:
    text = str(verdict.anomalies[0]) if verdict.anomalies else verdict.failures[0].splitlines()[0]
    return text if len(text) <= WORDS_MAX else text[: WORDS_MAX - 3] + "..."
