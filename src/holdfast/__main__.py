"""`python -m holdfast`: the `holdfast` command of this very interpreter, wherever its scripts are."""

from holdfast.cli import main

if __name__ == "__main__":
    main()
