"""Which folders go into the wheel; all else is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

# `results/` of the root is shipped inside the package, so that pages find it on Colab too.
RESULTS = "gpulab_utils.data.results"
skip = ["*.__pycache__", "*.__pycache__.*"]

setup(
    packages=[*find_namespace_packages(include=["gpulab_utils*"], exclude=skip), RESULTS],
    package_dir={RESULTS: "results"},
    package_data={"gpulab_utils.data": ["**/*"], RESULTS: ["**/*.json"]},
)
