"""Runs `semel pipeline` as `python -m pyspark_semel.pipeline`, without the installed command."""

from pyspark_semel.pipeline.command import pipeline

pipeline(prog_name="semel pipeline")
