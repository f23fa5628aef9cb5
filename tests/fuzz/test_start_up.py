"""Files damaged while the broker is down: the start refuses and names the file, or every loss is reported."""

from __future__ import annotations

import pytest
from fuzz.campaigns import directories, log_files

LOGS_PER_TEST = 100
DIRECTORIES_PER_TEST = 15


@pytest.mark.parametrize("first", range(0, 600, LOGS_PER_TEST))
def test_losses_from_damaged_log_files_are_reported(first: int) -> None:
    for seed in range(first, first + LOGS_PER_TEST):
        log_files(seed)


@pytest.mark.parametrize("first", range(0, 60, DIRECTORIES_PER_TEST))
def test_losses_from_a_damaged_data_directory_are_reported(first: int) -> None:
    for seed in range(first, first + DIRECTORIES_PER_TEST):
        directories(seed)
