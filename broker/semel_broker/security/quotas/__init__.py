"""Quotas of clients: their lookup, the measured rates, and the times for which clients are throttled."""
