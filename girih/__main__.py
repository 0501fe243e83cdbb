"""`python -m girih`, also under torchrun."""

from girih.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
