"""PURE: producer state of a log: sequences, epochs, open and aborted transactions."""
