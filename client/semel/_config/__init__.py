"""Settings of producer, consumer and admin: names, types, defaults, checks."""
