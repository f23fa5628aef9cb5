"""The plain main job: a consumer group counts a year of flights while the broker is killed; no transactions."""
