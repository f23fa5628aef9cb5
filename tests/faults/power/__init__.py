"""Power losses of a real broker process: its disk calls are recorded, and brokers start on what a loss could leave."""
