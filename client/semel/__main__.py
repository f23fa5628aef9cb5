"""`python -m semel` is the command `semel`, for environments whose scripts are not on the PATH."""

from semel.cli.main import main

if __name__ == "__main__":
    main(prog_name="semel")
