"""For the makers of semel: figures, other people's programs, the site, releases, compose files as processes."""
