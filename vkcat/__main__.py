"""`python -m vkcat`."""

from vkcat.cli import main

main()
