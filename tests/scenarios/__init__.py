"""Scenarios: small readable scripts of events at a broker and its clients, and of the required results."""
