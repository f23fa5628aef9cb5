"""The only door to files: the seam, the real disk, and a disk in memory that loses unsynced bytes in a crash."""
