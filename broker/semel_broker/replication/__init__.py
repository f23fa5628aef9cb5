"""What brokers are to each other: connections, followers that fetch, leaders that keep the ISR."""
