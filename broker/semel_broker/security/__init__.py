"""Principals, access control entries, and the authorizer that decides by them."""
