"""The requirements of each API: one table, checked before a handler runs. Without an authorizer nothing is checked."""
