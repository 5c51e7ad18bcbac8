"""`python -m tidegate.local_stack`, the twin of `tidegate-local`."""

from tidegate.local_stack.cli import main

if __name__ == "__main__":
    main()
