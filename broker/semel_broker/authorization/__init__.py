"""What each API requires: one table, checked before a handler runs. Without an authorizer nothing is checked."""
