"""PURE. A pattern of Python's `re` as the regular expression that brokers evaluate (KIP-848, RE2 syntax)."""

from __future__ import annotations

import re

FLAG_LETTERS = {re.IGNORECASE: "i", re.DOTALL: "s"}
WITHOUT_MEANING = re.ASCII | re.UNICODE
"""Topic names are ASCII."""
DIFFERENT_IN_RE2 = ("{,", "[[:")
"""Both read these texts without an error, and give them different meanings."""
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Kafka's internal topics."""


def regex_for_brokers(pattern: re.Pattern[str], *, exclude_internal_topics: bool) -> str | None:
    """The expression that matches the same topics as `pattern` does from the start of their names. None when only the
    client can evaluate it.

    Brokers match whole names, and give internal topics too. They refuse what else RE2 does not have.
    """
    if exclude_internal_topics and any(pattern.match(topic) for topic in INTERNAL_TOPICS):
        return None
    flags = re.RegexFlag(pattern.flags) & ~WITHOUT_MEANING
    letters = "".join(letter for flag, letter in FLAG_LETTERS.items() if flag & flags)
    unknown = flags & ~(re.IGNORECASE | re.DOTALL)
    if unknown or any(text in pattern.pattern for text in DIFFERENT_IN_RE2):
        return None
    return f"{f'(?{letters})' if letters else ''}(?:{pattern.pattern}).*"
