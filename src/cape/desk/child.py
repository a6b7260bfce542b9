"""`cape submit` as a process of its own, which outlives the desk that started it.

    python -m cape.desk.child submit study.toml --kit KIT --out results

It runs the very command, in this process. The file `running` holds its process id, and `exit` its exit status
once it has ended. Ctrl-C reaches it even if whoever started the desk ignores it, as shells do for what they
put in the background: that is how a submission is cancelled.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from contextlib import suppress
from pathlib import Path

from cape.core import files

__all__ = ["EXIT", "RUNNING", "main"]

RUNNING, EXIT = "running", "exit"


def main(arguments: list[str]) -> int:
    """Run a command of cape, and keep its exit status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        Path(RUNNING).write_text(f"{os.getpid()}\n")  # not replaced: the starter has locked this very file
        sys.argv = ["cape", *arguments]
        runpy.run_module("cape", run_name="__main__")
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except KeyboardInterrupt:
        code = 130
    finally:
        with suppress(OSError):  # a full disk; the process has ended, and that is seen
            files.replace(Path(EXIT), f"{code}\n".encode())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
