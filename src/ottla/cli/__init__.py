"""The command-line tools. Commands import their implementation lazily, which keeps help fast."""
