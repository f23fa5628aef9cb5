"""Lines that leave the process (the log, the audit log): queued by the event loop, written by threads."""
