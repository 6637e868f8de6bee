"""The command line. Each command imports what it runs only when it runs, so that help is quick."""
