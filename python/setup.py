"""What setuptools does not know by itself: the project's own configure and make build the library, the extension and
the tools, and `make install` says which headers, programs and manuals there are.

The environment variables CC, CFLAGS and TILUSVM_CONFIGURE (more arguments of ./configure) are heard; TILUSVM_BUILD is a
folder that was configured before, in which make is called.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
#: The project: in a source archive of the package it is a folder of it, elsewhere python/ is a folder of the project.
TOP = HERE / "source" if (HERE / "source").is_dir() else HERE.parent
#: Where an installation that can be edited is built.
EDITABLE = Path(os.environ.get("TILUSVM_BUILD") or TOP / "build" / "wheel")


def _run(command, folder, **more):
    print("+", shlex.join(map(str, command)), flush=True)
    # libtool cannot do with a standard input that is closed.
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, check=True, stdin=subprocess.DEVNULL, **more)


def _version():
    found = re.search(r"^AC_INIT\(\[.*?\], \[(.*?)\]", (TOP / "configure.ac").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{TOP}/configure.ac names no version")
    return found[1]


def _configured(folder):
    """A folder in which make can be called: that of TILUSVM_BUILD, or the given one, configured."""
    folder = Path(os.environ.get("TILUSVM_BUILD") or folder)
    if not (folder / "config.status").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if not (TOP / "configure").exists():
            _run(["autoreconf", "-fi"], TOP)
        options = ["--disable-static", f"--with-python={sys.executable}"]
        flags = [] if "CFLAGS" in os.environ else ["CFLAGS=-O2"]
        more = shlex.split(os.environ.get("TILUSVM_CONFIGURE", ""))
        _run([TOP / "configure", *options, *flags, *more], folder)
    return folder


def _make(folder, *arguments):
    # The archives of libffi and libsodium, so that the shared library asks for neither where it is installed.
    archives = ["LIBFFI_LIBS=$(LIBFFI_ARCHIVE)", "SODIUM_LIBS=$(SODIUM_ARCHIVE)"]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    jobs = len(os.sched_getaffinity(0))
    _run(["make", f"-j{jobs}", *archives, *arguments], folder, env=environment)


def _library(build, package):
    """lib/: the shared library, what the linker finds for -ltilusvm, and what pkg-config and CMake are told of it."""
    lib = package / "lib"
    (built,) = (file for file in (build / ".libs").glob("libtilusvm.so.*.*.*"))
    name = ".".join(built.name.split(".")[:3])
    lib.mkdir()
    shutil.copy(built, lib / name)
    (lib / "libtilusvm.so").write_text(f"INPUT({name})\n")  # archives of wheels have no links
    places = {
        "exec_prefix": "${prefix}",
        "libdir": "${prefix}/lib",
        "includedir": "${prefix}/include",
        "datarootdir": "${prefix}",
        "datadir": "${prefix}",
        "PACKAGE_VERSION": _version(),
        "LIBFFI_LIBS": "",  # both are in the library
        "SODIUM_LIBS": "",
    }

    def write(source, target, prefix):
        values = {**places, "prefix": prefix}
        text = re.sub("@(.*?)@", lambda found: values[found[1]], (TOP / source).read_text())
        text = text.replace("${datadir}/tilusvm/programs", "${datadir}/programs")
        text = re.sub("^Requires.private:.*\n", "", text, flags=re.MULTILINE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("} -ltilusvm", "} -Wl,-rpath,${libdir} -ltilusvm"))

    write("tilusvm.pc.in", lib / "pkgconfig" / "tilusvm.pc", "${pcfiledir}/../..")
    for file in ("tilusvmConfig.cmake", "tilusvmConfigVersion.cmake"):
        write(f"packaging/{file}.in", lib / "cmake" / "tilusvm" / file, "/tilusvm")


class BuildPackage(build_py):
    """build_lib/tilusvm is the package, share/man beside it the manual."""

    def run(self):
        if self.editable_mode:  # the package as `make python` puts it together, with links to the sources
            _make(_configured(EDITABLE), "python")
            return
        with tempfile.TemporaryDirectory() as folder:
            build = _configured(folder).resolve()
            _make(build, "python")
            self._stage(build, Path(self.build_lib).resolve())
        self.distribution.metadata.license_files = ["COPYING"]  # which setuptools finds by itself from version 77 on

    def _stage(self, build, lib):
        package = lib / "tilusvm"
        shutil.rmtree(package, ignore_errors=True)
        linked = build / "python" / "tilusvm"
        shutil.copytree(linked, package, ignore=shutil.ignore_patterns("__pycache__", "bin", "programs"))
        with tempfile.TemporaryDirectory() as stage:
            places = {"bindir": "/tilusvm/bin", "includedir": "/tilusvm/include", "datadir": "", "mandir": "/man"}
            # The package makes programs of other types by itself; its pkg-config file is of the package, too.
            places |= {"pkgconfigdir": "/unused", "cmakedir": "/unused", "nodist_programs_DATA": "", "DESTDIR": stage}
            words = [f"{name}={value}" for name, value in places.items()]
            _make(build, *words, "install-binPROGRAMS", "install-data")
            shutil.copytree(Path(stage) / "tilusvm", package, dirs_exist_ok=True)
            manual = lib.parent / "man"
            shutil.rmtree(manual, ignore_errors=True)
            shutil.copytree(Path(stage) / "man", manual)
        _library(build, package)
        self.distribution.data_files = [
            (f"share/man/{section.name}", sorted(str(page) for page in section.iterdir()))
            for section in sorted(manual.iterdir())
        ]

    def get_outputs(self, include_bytecode=True):
        return [str(file) for file in (Path(self.build_lib) / "tilusvm").rglob("*") if file.is_file()]

    def get_output_mapping(self):
        return {}

    def get_source_files(self):
        return []


class SourceArchive(sdist):
    """What the package is described by, and in source/ what `make dist` puts into an archive of the project."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, [file for file in files if not file.startswith(("tests/", "tilusvm/"))])
        with tempfile.TemporaryDirectory() as folder:
            _make(_configured(folder), "distdir", f"distdir={Path(base_dir).resolve() / 'source'}")


class Binary(Distribution):
    def has_ext_modules(self):
        return True


def _options(folder):
    """What setuptools makes on the way goes into a folder that ends with it; a source archive has its own beside it."""
    options = {"bdist_wheel": {"py_limited_api": "cp311"}, "build": {"build_base": folder}}
    if "sdist" not in sys.argv:
        options["egg_info"] = {"egg_base": folder}
    return options


with tempfile.TemporaryDirectory() as temporary:
    setup(
        version=_version(),
        license="Apache-2.0",  # not in pyproject.toml, as Debian 12's setuptools knows no plain text there
        packages=["tilusvm"],
        package_dir={"": os.path.relpath(EDITABLE / "python", HERE)} if "editable_wheel" in sys.argv else {},
        distclass=Binary,
        cmdclass={"build_py": BuildPackage, "sdist": SourceArchive},
        options=_options(temporary),
    )
