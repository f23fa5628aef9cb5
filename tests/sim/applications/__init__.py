"""Whole applications in the simulator: killed, paused or left without their broker at each of their steps in turn."""
