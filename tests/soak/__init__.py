"""A broker that runs for a long time: does its memory level off?"""
