"""Transaction markers: this broker writes those of its partitions and sends the others to partition leaders."""
