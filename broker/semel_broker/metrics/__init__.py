"""Metrics of a broker in Prometheus' text format, its health, and the watchdog of its event loop."""
