"""What gets installed: wheel, sdist and editable install, each in a fresh environment, and the tree as it is."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
# What a build must not see: environments, caches, and the leftovers of other builds.
LEFTOVERS = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")


def run(*command, cwd, **environment):
    """Run a command that must succeed, with none of the caller's Python settings; give its output."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "COV"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Make a folder by a name once, whichever of pytest-xdist's workers comes first; the others wait for it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def make(name, fill):
        folder, done = shared / name, shared / f"{name}.done"
        with FileLock(shared / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return make


@pytest.fixture(scope="session")
def tree(once):
    """A copy of the sources, so that building leaves nothing in them."""

    def fill(folder):
        shutil.copytree(ROOT, folder, symlinks=True, ignore=LEFTOVERS, dirs_exist_ok=True)

    return once("tree", fill)


@pytest.fixture(scope="session")
def built(once, tree):
    """The folder with the wheel and the sdist."""

    def fill(folder):
        options = ("--no-isolation", "--sdist", "--wheel", "--outdir", folder)
        run(sys.executable, "-m", "build", *options, tree, cwd=tree)

    return once("dist", fill)


@pytest.fixture(scope="session")
def dependencies(once):
    """A folder through which the dependencies of this environment, but no gradfuzz, can be imported."""

    def fill(folder):
        for home in {Path(find_spec(name).origin).parents[1] for name in ("click", "pytest", "torch")}:
            for entry in home.iterdir():
                if not entry.name.startswith(("gradfuzz", "__editable__", "__pycache__")) and entry.suffix != ".pth":
                    (folder / entry.name).symlink_to(entry)

    return once("dependencies", fill)


class Environment:
    """A virtual environment without pip that shares the dependencies of this one."""

    def __init__(self, folder):
        self.folder = folder
        self.scripts = folder / ("Scripts" if os.name == "nt" else "bin")
        self.empty = folder / "empty"

    @classmethod
    def create(cls, folder, dependencies):
        """Make the environment in an empty folder."""
        run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
        environment = cls(folder)
        environment.empty.mkdir()
        (environment.site_packages / "dependencies.pth").write_text(f"{dependencies}\n")
        return environment

    @property
    def site_packages(self):
        """Where packages are installed."""
        return Path(self.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    @property
    def top_level(self):
        """The names in site-packages."""
        return {path.name for path in self.site_packages.iterdir()} - {"dependencies.pth", "__pycache__"}

    def python(self, code, cwd=None):
        """Run some Python where no source tree is near, or in the folder given."""
        return run(self.scripts / "python", "-c", code, cwd=cwd or self.empty)

    def install(self, *what):
        """Install without looking for anything elsewhere."""
        options = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet")
        pip = (sys.executable, "-m", "pip", "--python", self.scripts / "python", "install")
        run(*pip, *options, *what, cwd=self.empty)


@pytest.fixture(scope="session")
def bare(once, dependencies):
    """An environment without gradfuzz."""
    return Environment(once("bare", lambda folder: Environment.create(folder, dependencies)))


@pytest.fixture(scope="session", params=["wheel", "sdist", "editable"])
def installed(request, once, built, tree, dependencies):
    """An environment in which gradfuzz has been installed, in each of the three ways."""
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    what = {"wheel": [wheel], "sdist": [sdist], "editable": ["--editable", tree]}[request.param]
    environment = Environment(
        once(request.param, lambda folder: Environment.create(folder, dependencies).install(*what))
    )
    environment.home = tree if request.param == "editable" else environment.site_packages
    return environment


def packages_on_disk():
    """The name of every folder that holds Python files and is meant to be installed."""
    below = [path.relative_to(ROOT) for path in (ROOT / "gradfuzz").rglob("*.py")]
    names = {".".join(path.parent.parts) for path in below if path.parts[:2] != ("gradfuzz", "strategies")}
    strategies = [path.relative_to(ROOT) for path in (ROOT / "strategies").rglob("*.py")]
    return names | {".".join(("gradfuzz", *path.parent.parts)) for path in strategies}


def test_every_package_on_disk_is_listed_by_hand():
    assert packages_on_disk() == set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_package_has_an_init_with_a_docstring():
    for name in packages_on_disk():
        folder = name.removeprefix("gradfuzz.") if name.startswith("gradfuzz.strategies") else name
        first = (ROOT / folder.replace(".", "/") / "__init__.py").read_text()
        assert first.startswith('"""'), name


def test_the_version_is_the_same_everywhere(installed):
    code = "import gradfuzz, importlib.metadata as m; print(gradfuzz.__version__, m.version('gradfuzz'))"
    assert installed.python(code).split() == [VERSION, VERSION]


def test_site_packages_gets_no_top_level_name_but_gradfuzz(installed):
    names = {name for name in installed.top_level if not name.startswith("__editable__")}
    assert names - {"gradfuzz"} == {f"gradfuzz-{VERSION}.dist-info"}
    assert installed.python("import importlib.util as u; print(u.find_spec('strategies'))").strip() == "None"


def test_what_was_installed_is_what_is_imported(installed):
    where = Path(installed.python("import gradfuzz; print(gradfuzz.__file__)").strip())
    assert where == installed.home / "gradfuzz" / "__init__.py"


def test_strategies_are_imported_by_either_spelling(installed):
    code = """
import gradfuzz.strategies
from gradfuzz import strategies as gst
assert gst is gradfuzz.strategies
print(gst.__name__, callable(gst.tensors), callable(gst.indices))
"""
    assert installed.python(code).split() == ["gradfuzz.strategies", "True", "True"]


def test_every_public_name_can_be_imported(installed):
    assert installed.python("import gradfuzz\nfor name in gradfuzz.__all__: getattr(gradfuzz, name)") == ""


def test_the_types_are_announced(installed):
    code = "from importlib.resources import files; print((files('gradfuzz') / 'py.typed').is_file())"
    assert installed.python(code).strip() == "True"


def test_the_command_tells_what_it_can_do(installed):
    text = run(installed.scripts / "gradfuzz", "--help", cwd=installed.empty)
    assert {"fuzz", "replay", "show", "list"} <= set(text.split())


def test_pytest_takes_the_plugin_once_even_when_it_is_named(installed):
    options = ("-p", "gradfuzz.pytest_plugin", "-p", "no:cacheprovider", "--markers")
    text = run(installed.scripts / "python", "-m", "pytest", *options, cwd=installed.empty)
    assert text.count("@pytest.mark.gradfuzz") == 1


HELP = """
import sys
from gradfuzz.cli import main
sys.argv = ["gradfuzz", "--help"]
try:
    main()
except SystemExit:
    pass
"""
HEAVY = "import sys; print(*sorted({'torch', 'hypothesis', 'numpy'} & set(sys.modules)))"


@pytest.mark.parametrize(
    "code",
    [
        "import gradfuzz",
        "import gradfuzz.cli",
        "import gradfuzz.pytest_plugin",
        HELP,
    ],
    ids=["door", "command line", "plugin", "help"],
)
def test_the_doors_load_nothing_heavy(bare, tree, code):
    assert bare.python(f"{code}\n{HEAVY}", cwd=tree).splitlines()[-1].split() == []


def test_what_is_heavy_is_seen_where_it_is_loaded(bare, tree):
    assert "torch" in bare.python(f"import gradfuzz; gradfuzz.check\n{HEAVY}", cwd=tree).split()


def test_the_wheel_holds_each_strategy_once(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"gradfuzz", f"gradfuzz-{VERSION}.dist-info"}
    expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / "strategies").rglob("*.py")}
    assert sorted(name for name in names if "strategies" in name) == sorted(f"gradfuzz/{name}" for name in expected)


def test_the_sdist_has_all_that_the_goals_of_make_need(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = {"Makefile", "constraints.txt", "conftest.py", "pyproject.toml", "LICENSE", "tests/test_packaging.py"}
    assert files | {"examples/demo.py", "benchmarks", "corpus/README.md", "docs/index.md"} <= names
    assert not any(name.startswith("gradfuzz/strategies") for name in names)


def test_the_tests_of_an_unpacked_sdist_find_the_strategies_without_the_link(built, bare, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    (unpacked / "tests" / "test_link.py").write_text(
        "from gradfuzz import strategies\ndef test(): strategies.tensors\n"
    )
    options = ("-p", "no:cacheprovider", "-q")
    text = run(bare.scripts / "python", "-m", "pytest", *options, "tests/test_link.py", cwd=unpacked)
    assert "1 passed" in text


@pytest.mark.skipif(not (ROOT / "gradfuzz" / "strategies").is_dir(), reason="an sdist holds no link")
def test_the_tree_is_usable_without_installation(bare, tree):
    code = "from gradfuzz import strategies; print(strategies.__file__)"
    assert bare.python(code, cwd=tree).strip() == str(tree / "gradfuzz" / "strategies" / "__init__.py")
