"""`semel user`: lists, creates and deletes users, and changes their passwords."""
