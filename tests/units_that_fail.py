"""Unit functions that go wrong in the ways that real ones do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def rows(unit):
    print("hello from", unit["unit"], "\udc80")
    if place := unit.get("count"):
        with open(place, "a") as file:
            file.write(unit["unit"] + "\n")
    time.sleep(unit.get("pause_s", 0))
    return {
        "rows": [
            {"unit": unit["unit"], "n": n, "pid": os.getpid(), "home": os.environ.get("TOY_STATE")} for n in range(3)
        ]
    }


def leaves_state(unit):
    result = rows(unit)
    os.environ["TOY_STATE"] = unit["unit"]
    return result


def raises_on_odd(unit):
    if int(unit["unit"][-1]) % 2:
        raise ValueError("odd\nand more")
    return rows(unit)


def killed_once(unit):
    flag = Path(unit["flag"])
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return rows(unit)


def always_killed(unit):
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_without_a_word(unit):
    os._exit(0)


def calls_exit(unit):
    sys.exit(0)


def hangs_with_a_child(unit):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    Path(unit["pid"]).write_text(str(child.pid))
    time.sleep(1000)


def gives_no_dict(unit):
    return [1]


def gives_nan(unit):
    return {"rows": [float("nan")]}


def environment(unit):
    return {"rows": [sorted(name for name in os.environ if "KEY" in name or "TOKEN" in name)]}


def born_with(unit):
    from kiokulab import embed

    return {"rows": [{"use": "use" in embed._shared, "warm": os.environ.get("KIOKULAB_WARM") or None}]}
