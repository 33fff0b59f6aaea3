"""Builds the wheel, for pip: the project's own configure and make build the library and the extension, and this puts
them into the archive with the package's files and the programs. Needs nothing but Python and what ./configure asks for.

The environment variables CC, CFLAGS and TILUSVM_CONFIGURE (more arguments of ./configure) are heard; TILUSVM_BUILD is a
folder that was configured before, in which make is called.
"""

import base64
import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent


def _run(command, folder):
    print("+", shlex.join(map(str, command)), flush=True)
    subprocess.run([str(word) for word in command], cwd=folder, check=True)


def _version():
    for line in (TOP / "configure.ac").read_text().splitlines():
        if line.startswith("AC_INIT("):
            return line.split("[")[2].split("]")[0]
    raise SystemExit("configure.ac names no version")


def _build(folder):
    """The package, put together in a folder: the path of tilusvm/ with the extension, beside which is bin/."""
    folder = os.environ.get("TILUSVM_BUILD") or folder
    if not (Path(folder) / "config.status").exists():
        _configure(folder)
    jobs = str(len(os.sched_getaffinity(0)))
    _run(["make", f"-j{jobs}", "python"], folder)
    return Path(folder) / "python" / "tilusvm"


def _configure(folder):
    if not (TOP / "configure").exists():
        _run(["autoreconf", "-fi"], TOP)
    more = shlex.split(os.environ.get("TILUSVM_CONFIGURE", ""))
    options = ["--disable-shared", "--with-pic", f"--with-python={sys.executable}", *more]
    _run([TOP / "configure", *options], folder)


def _metadata(version):
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    for extra, requirements in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {requirement}; extra == '{extra}'" for requirement in requirements]
    return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text()


def _tag():
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"cp311-abi3-{platform}"


class _Wheel:
    """An archive, and the record of what is in it."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name)  # of a fixed time, so that the same sources give the same wheel
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, info, version):
        self.add(f"{info}/METADATA", _metadata(version).encode())
        head = f"Wheel-Version: 1.0\nGenerator: tilusvm\nRoot-Is-Purelib: false\nTag: {_tag()}\n"
        self.add(f"{info}/WHEEL", head.encode())
        self.record.append(f"{info}/RECORD,,")
        self.zip.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "\n".join(self.record) + "\n")
        self.zip.close()


def _close(wheel, package, version):
    """Adds the command tvm-pack, and what installers want to know."""
    tool = package.parent / "bin" / "tvm-pack"
    wheel.add(f"tilusvm-{version}.data/scripts/{tool.name}", tool.read_bytes(), 0o755)
    wheel.close(f"tilusvm-{version}.dist-info", version)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Without it pip builds the wheel twice."""
    version = _version()
    info = Path(metadata_directory) / f"tilusvm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(_metadata(version))
    return info.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = _version()
    name = f"tilusvm-{version}-{_tag()}.whl"
    with tempfile.TemporaryDirectory() as folder:
        package = _build(folder)
        wheel = _Wheel(Path(wheel_directory) / name)
        for file in sorted(package.rglob("*.py*")) + [package / "py.typed", package / "_native.abi3.so"]:
            if "__pycache__" not in file.parts and "programs" not in file.relative_to(package).parts:
                mode = 0o755 if file.suffix == ".so" else 0o644
                wheel.add(f"tilusvm/{file.relative_to(package)}", file.read_bytes(), mode)
        for file in sorted((TOP / "programs").rglob("*.vasm*")):
            wheel.add(f"tilusvm/programs/{file.relative_to(TOP / 'programs')}", file.read_bytes())
        _close(wheel, package, version)
    return name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package as `make python` puts it together in build/wheel, with links to the sources."""
    version = _version()
    name = f"tilusvm-{version}-{_tag()}.whl"
    folder = TOP / "build" / "wheel"
    folder.mkdir(parents=True, exist_ok=True)
    package = _build(folder)
    wheel = _Wheel(Path(wheel_directory) / name)
    wheel.add("tilusvm.pth", f"{package.parent}\n".encode())
    _close(wheel, package, version)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("`make dist` makes the source archive, of the whole project; pip builds its python/")
