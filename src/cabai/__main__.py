"""`python -m cabai` is the shell command `cabai`."""

import cabai.interrupts as _  # noqa: F401 - first
from cabai.quick import main

if __name__ == "__main__":  # not when a child process imports it again
    main()
