"""`python -m tidegate.spanner_simulator`."""

from tidegate.spanner_simulator.cli import main

if __name__ == "__main__":
    main()
