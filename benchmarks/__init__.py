"""Measurements of gradfuzz: what it finds, what it cries wolf at, and how fast it is."""
