"""`python build.py --target NAME` is `edge build --target NAME`."""

import sys

from edge.cli import main

if __name__ == "__main__":
    main(["build", *sys.argv[1:]])
