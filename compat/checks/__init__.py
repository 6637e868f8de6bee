"""What is checked, by subject; `compat/run` names them all."""
