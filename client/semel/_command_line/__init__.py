"""Shared by the commands of `semel`: the options of their clients, their output, and their end."""
