"""Power losses of a real broker process: its disk calls are recorded, and brokers start from any state that a loss
can leave.
"""
