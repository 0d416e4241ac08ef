"""Makes ``gradfuzz.strategies`` importable where the link ``gradfuzz/strategies`` is missing.

An sdist holds no link, and git on Windows may write it as a plain file; the tests then still run uninstalled.
"""

from pathlib import Path

import gradfuzz

_ROOT = Path(__file__).parent

if not any(Path(folder, "strategies").is_dir() for folder in gradfuzz.__path__):
    gradfuzz.__path__.append(str(_ROOT))
