"""The source of the format "semel": reads topics into data frames, as batch and as stream."""
