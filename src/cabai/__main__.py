"""`python -m cabai` is the shell command `cabai`."""

import cabai.interrupts as _  # noqa: F401 - first
from cabai.quick import main

if __name__ == "__main__":  # not where a process that it starts imports it again
    main()
