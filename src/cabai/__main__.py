"""`python -m cabai` is the shell command `cabai`."""

from cabai.cli import main

if __name__ == "__main__":  # not where a process that it starts imports it again
    main()
