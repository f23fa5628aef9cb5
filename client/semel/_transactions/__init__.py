"""The transactions of producers: their coordinators, commits, aborts, fencing, and transaction groups."""
