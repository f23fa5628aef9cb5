"""Principals and what they may do: users, SASL, access control entries, quotas."""
