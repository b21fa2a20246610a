"""Build: conf/ goes into the package, as headcount/conf. An editable install reads it where it is."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            configs = Path(self.build_lib, "headcount", "conf")
            shutil.rmtree(configs, ignore_errors=True)  # of an earlier build
            shutil.copytree("conf", configs)


setup(cmdclass={"build_py": BuildWithConfigs})
