"""What ONNX Runtime's releases are built with: versions of tools, by release."""

from __future__ import annotations

Release = tuple[int, int]
# The first release of each row. Versions between the rows' tested releases follow the row before.
EMSDK = (((1, 17), "3.1.51"), ((1, 18), "3.1.57"), ((1, 19), "3.1.59"), ((1, 21), "4.0.3"),
         ((1, 22), "4.0.4"), ((1, 23), "4.0.8"), ((1, 24), "4.0.23"))  # fmt: skip
NDK = (((1, 17), "26 or newer"), ((1, 20), "27.0.12077973"), ((1, 21), "27.2.12479018"),
       ((1, 24), "28.0.13004108"))  # fmt: skip
CMAKE = (((1, 17), "3.26"), ((1, 21), "3.28"))
# CMake 4 refuses the projects of releases before this one (#23888, #23512).
CMAKE_4 = (1, 22)
PYTHON_VERSION = (((1, 17), "3.8"), ((1, 20), "3.10"), ((1, 24), "3.11"))
# For C++17, and for C++20.
GCC = (((1, 17), "9"), ((1, 25), "11"))
NODE, XCODE, JDK = "20", "15", "17"


def row(table: tuple[tuple[Release, str], ...], release: Release) -> str:
    """The value of the last row that is not newer than ``release``."""
    return next(value for first, value in reversed(table) if first <= release)
