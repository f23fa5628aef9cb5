"""Clients of transaction version 1 in the simulator: which late requests can do harm, and which cannot."""
