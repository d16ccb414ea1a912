"""``python -m dpmodel``: the command line."""

from dpmodel.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
