"""The `semel` command, over the client's public classes. `serve` and `log` come from other packages by entry point."""
