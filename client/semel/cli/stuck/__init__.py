"""Why a partition or a group does not move."""
