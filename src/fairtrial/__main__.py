"""`python -m fairtrial`."""

from fairtrial.cli.main import main

if __name__ == "__main__":
    main()
