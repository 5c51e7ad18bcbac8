"""`python -m spanner_simulator`."""

from spanner_simulator.cli import main

if __name__ == "__main__":
    main()
