"""Scenarios: small readable scripts of what happens to a broker and its clients, and what must hold then."""
