"""Access to files: the interface, the real disk, and a disk in memory that loses unsynced bytes in a crash."""
