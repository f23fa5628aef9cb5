"""The main job: a year of real flights through a broker that is killed on the way, counted exactly."""
