"""Builds wheels. pyproject.toml has the metadata; wheels.py says what goes in and for which platform.

CKD_WHEEL_VERSION is the version of the package and of the program in it. CKD_WHEEL_PLATFORM is the
tag of a wheel that holds the program; without it, the wheel has none and fits every platform.
"""

import os

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel

PLATFORM = os.environ.get("CKD_WHEEL_PLATFORM")


class Platform(Distribution):
    def has_ext_modules(self):
        return PLATFORM is not None


class Wheel(bdist_wheel):
    def get_tag(self):
        # The program needs no C library, and the rest is Python: every Python 3 of the platform.
        return ("py3", "none", PLATFORM or "any")


setup(
    version=os.environ.get("CKD_WHEEL_VERSION", "0+unknown"),
    packages=["ckd"],
    package_data={"ckd": ["py.typed", "contract.binpb", "program"]},
    cmdclass={"bdist_wheel": Wheel},
    distclass=Platform,
)
