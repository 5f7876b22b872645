"""The command in a forked process that imports the package anew: `python -m anew ARGUMENTS`.

What is read where the package is imported, such as the studies of other packages, is read again.
"""

import runpy
import sys

if __name__ == "__main__":
    for name in [name for name in sys.modules if name.partition(".")[0] == "pipeline"]:
        del sys.modules[name]
    runpy.run_module("pipeline", run_name="__main__", alter_sys=True)
