"""Shared by several commands: options, output, times, partition names, open transactions, reassignments."""
