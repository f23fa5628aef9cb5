"""PURE: what a consumer subscribes to, its assignment, its positions, and the bytes fetched for them."""
