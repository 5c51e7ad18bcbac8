"""`python -m tidegate.producer` is `tidegate-producer`."""

from tidegate.producer.cli import main

if __name__ == "__main__":
    main()
