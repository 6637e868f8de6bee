"""`python -m ottla` is the same as `ottla`."""

from ottla.cli.main import main

if __name__ == "__main__":
    main()
