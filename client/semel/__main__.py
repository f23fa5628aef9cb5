"""`python -m semel` is the command `semel`, for environments whose scripts are not on the PATH."""

from semel_command import main

if __name__ == "__main__":
    main()
