"""The source: reads topics into data frames, batch and stream."""
