"""Pure decision logic: state and event in, effects out. Time and randomness are inputs."""
