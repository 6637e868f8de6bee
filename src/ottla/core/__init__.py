"""Decisions without I/O: state and event in, effects out. Time and chance are inputs."""
