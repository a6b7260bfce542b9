"""The command `cape`: arguments, help, exit statuses, and what is printed.

Not here: what the desk shows too (`app`). No other package of ours imports it.

Exit status: 0 success, 1 failure, 2 wrong use, 130 interrupted. Errors are one or two lines. Everything heavy
is imported inside `main`, so that Ctrl-C is quiet during imports too.
"""

from __future__ import annotations

import os
import sys
import warnings

from cape.core.errors import CapeError, InvalidInput

__all__ = ["main"]

_TRACEBACK = "CAPE_TRACEBACK"
_INTERRUPTED = 130


def main() -> None:
    """Run the command, and report an error in a line that says what to do."""
    try:
        from cape.cli import commands

        warnings.showwarning = commands.warn
        commands.app()
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as left:
        if _by_keyboard(left):
            _interrupted()
        raise
    except CapeError as error:
        print(f"cape: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InvalidInput) else 1)
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        # The message of another library may quote a cell, so only the kind of the error is shown.
        print(
            f"cape: unexpected error ({type(error).__name__}); set {_TRACEBACK}=1 to see where",
            file=sys.stderr,
        )
        sys.exit(1)


def _by_keyboard(left: SystemExit) -> bool:
    """Return whether typer raised this for a Ctrl-C that no command has reported."""
    return left.__context__ is not None and isinstance(left.__context__.__cause__, KeyboardInterrupt)


def _interrupted() -> None:
    """Report it; `cape run` does so itself once it may have spent something."""
    print("cape: interrupted. Nothing was spent.", file=sys.stderr)
    sys.exit(_INTERRUPTED)
