"""PURE: what a log knows of its producers: sequences, epochs, open and aborted transactions."""
