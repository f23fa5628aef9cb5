"""What watches brokers: rules for Prometheus, a dashboard for Grafana."""
