"""The counting demo: a consumer group counts a year of flights, without transactions, while the broker is killed."""
