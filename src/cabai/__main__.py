"""`python -m cabai` is the shell command `cabai`."""

from cabai.cli import main

main()
