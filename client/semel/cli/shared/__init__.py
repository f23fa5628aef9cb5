"""What several commands use: options, times, partitions in words, progress of moves."""
