"""The main job: consume, transform, produce on a year of real flights, with kills on the way; each row once."""
