"""`python -m cape` is the command `cape`."""

from cape.cli import main

main()
