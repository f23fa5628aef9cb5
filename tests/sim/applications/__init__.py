"""Whole applications in the simulator: killed, paused or left without their broker before each of their steps."""
