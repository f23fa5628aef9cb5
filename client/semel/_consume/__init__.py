"""The reading side: fetching ahead, starting positions, commits, and reading whole logs."""
