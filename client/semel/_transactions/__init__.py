"""Transactions of a producer and transaction groups: what the calls do, and the talk with coordinators."""
