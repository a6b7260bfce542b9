"""Where an error came from: a file of the package, wherever the checkout lies and whatever it is called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cape
from assurance.judge import judge
from cape.privacy import Budget

RAISING = "def f(): raise KeyError('x')\n"


def raised_from(filename: str) -> BaseException:
    names: dict = {}
    exec(compile(RAISING, filename, "exec"), names)
    with pytest.raises(KeyError) as caught:
        names["f"]()
    return caught.value


@pytest.mark.parametrize(
    "filename", ["/home/somebody/cape/tests/test_x.py", "/srv/cape/cape/assurance/fuzz.py", "/opt/cape/x.py"]
)
def test_a_folder_called_cape_is_not_the_package(filename):
    assert judge(raised_from(filename), (), ()) == ("exception", "KeyError outside cape: 'x'")


def test_a_file_of_the_package_is_named_from_its_root():
    file = Path(cape.__file__).parent / "noise" / "made_up.py"
    assert judge(raised_from(str(file)), (), ()) == ("exception", "KeyError noise/made_up.py:1: 'x'")


def test_the_innermost_frame_of_the_package_counts():
    with pytest.raises(cape.InvalidInput) as caught:
        Budget(epsilon=-1.0, delta=1e-6)
    verdict = judge(caught.value, (), ["-1.0"])
    assert verdict is not None
    assert re.match(r"core/check\.py:\d+: ", verdict[1])
