"""A broker that works for a long time: does what it holds level off?"""
