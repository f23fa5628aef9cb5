"""The demo: transactional workers enrich a year of flights while processes are killed; each row appears once."""
