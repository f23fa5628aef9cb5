"""PURE: who reads which partition: the assignors, and the bytes in which group members tell each other."""
