"""The `semel` command: a thin face over the client. `serve` and `log` come from the other packages by entry point."""
