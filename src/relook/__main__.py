"""`python -m relook` is the command `relook`."""

from relook.cli.app import main

if __name__ == "__main__":
    main()
