"""`python -m labeldeconv`."""

from labeldeconv.cli import main

main()
