"""Clients of transaction version 1 in the simulator: what a request that comes too late can still do, and what not."""
