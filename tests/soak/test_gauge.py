"""The resources of a process level off: the mean of the last third is compared with that of the middle third."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from soak.gauge import TOLERANCES, GaugeSample, disk_bytes, judge

STILL = GaugeSample(memory=60, files=50, tasks=5, disk=8, client_memory=50, client_files=20)


def series(name: str, *values: float) -> list[GaugeSample]:
    return [msgspec.structs.replace(STILL, **{name: value}) for value in values]


@pytest.mark.parametrize("name", TOLERANCES)
def test_growth_in_the_last_third_is_reported(name: str) -> None:
    (problem,) = judge(series(name, 50, 50, 60, 60, 90, 90))
    assert problem.startswith(f"{name} grows: 60.0 in the middle third, 90.0 in the last; at most ")


def test_growth_in_the_first_third_is_warming_up() -> None:
    assert judge(series("memory", 20, 40, 60, 60, 60.5, 61)) == []


def test_memory_that_grows_by_a_tenth_in_each_third_does_not_level_off() -> None:
    assert judge(series("memory", 70, 73, 77, 80, 84, 88))


def test_samples_beyond_three_thirds_count_as_the_beginning() -> None:
    assert judge(series("memory", 10, 200, 60, 60, 60, 60, 60, 60)) == []


def test_disk_counts_the_files_of_all_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x" * 100_000)
    assert disk_bytes(tmp_path) >= 100_000
