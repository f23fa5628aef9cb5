"""PURE: the assignment of partitions to group members: assignors, and the members' embedded protocol."""
