"""Transaction markers: sent to partition leaders, here or on other brokers, until each is written."""
