"""Entry point of `python -m meshwright`, which runs the command line."""

from meshwright.cli import main

if __name__ == "__main__":
    main()
