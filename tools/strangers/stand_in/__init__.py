"""Runs Python programs and suites that import aiokafka on semel's client instead."""
