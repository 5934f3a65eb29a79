"""A sweep that starts loads the planning: this must not take the seconds that torch needs."""

import subprocess
import sys


def test_the_planning_of_a_new_sweep_imports_neither_torch_nor_lightning():
    program = (
        "import sys, search.planning.settle; print([name for name in ('torch', 'lightning') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
