"""`python -m labeldeconv`."""

from labeldeconv.cli.app import main

main()
