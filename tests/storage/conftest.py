import pytest
from semel_storage.disk.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()
