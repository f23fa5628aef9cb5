"""The state that all brokers share: registrations, topics, leaders and settings, in one store."""
