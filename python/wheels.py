"""Builds wheels that hold the ckd program, for each platform, without a network:

    python3 wheels.py --out ../dist

The program is cross-compiled and static. The version is that of the git tag, or what --version says;
the program, the package and the file's name have the same. The same commit gives the same bytes. It
needs Go and the Python modules build, setuptools and wheel.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILDINFO = "github.com/ckd-project/ckd/internal/buildinfo"

# Tags of the platforms that Go compiles for. Static binaries run on any C library. Those of darwin
# are compiled, but have not been run by the project.
PLATFORMS = {
    "linux/amd64": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "linux/arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    "darwin/amd64": "macosx_12_0_x86_64",
    "darwin/arm64": "macosx_12_0_arm64",
}
UNTESTED = "darwin/"


def git(*args):
    return subprocess.run(["git", "-C", HERE, *args], capture_output=True, text=True, check=False).stdout.strip()


def described():
    """Returns the version that git describes, as Python wants it: 1.2.3, or 1.2.3.post4+gabc."""
    found = re.fullmatch(r"v(\d+(?:\.\d+)*(?:-?(?:rc|a|b)\.?\d+)?)(?:-(\d+)-(g[0-9a-f]+))?", git("describe", "--tags", "--match=v*"))
    if found is None:
        return "0.0.0+g" + (git("rev-parse", "--short=12", "HEAD") or "unknown")
    tag, commits, revision = found.groups()
    tag = re.sub(r"[-.]?(rc|a|b)\.?", r"\1", tag)
    return f"{tag}.post{commits}+{revision}" if commits else tag


def compile_program(platform, version, path):
    system, architecture = platform.split("/")
    values = {"Version": version, "Revision": git("rev-parse", "HEAD")}
    flags = " ".join(["-s", "-w"] + [f"-X {BUILDINFO}.{name}={value}" for name, value in values.items()])
    subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", path, "./cmd/ckd"],
        cwd=HERE.parent, check=True, env={**os.environ, "CGO_ENABLED": "0", "GOOS": system, "GOARCH": architecture},
    )  # fmt: skip


def build(platform, version, out, programs):
    """Builds the wheel of a platform in a copy of this folder, and returns its path."""
    with tempfile.TemporaryDirectory() as folder:
        tree, made = pathlib.Path(folder, "python"), pathlib.Path(folder, "made")
        ignored = shutil.ignore_patterns("__pycache__", "tests", "program", "build", "*.egg-info")
        shutil.copytree(HERE, tree, ignore=ignored)
        program = tree / "ckd/program"
        if programs is None:
            compile_program(platform, version, program)
        else:
            shutil.copy(programs / f"ckd-{platform.replace('/', '-')}", program)
        for path in tree.rglob("*"):  # modes are part of the wheel
            path.chmod(0o755 if path.is_dir() or path == program else 0o644)
        # wheel takes the time of every file from here.
        epoch = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or "315532800"
        env = {**os.environ, "CKD_WHEEL_VERSION": version, "CKD_WHEEL_PLATFORM": PLATFORMS[platform], "SOURCE_DATE_EPOCH": epoch}
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", made, tree],
            check=True, env=env, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        (wheel,) = made.glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.copy(wheel, out))


def missing(platforms, programs):
    """Returns what is needed and not there, in words."""
    lacks = [f"the program {name}" for name in ["git"] + ["go"] * (programs is None) if shutil.which(name) is None]
    for name in "build", "setuptools", "wheel":
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:  # a folder of that name is no module
            lacks.append(f"the Python module {name} ({sys.executable} -m pip install {name}, or apt install python3-{name})")
    if programs is not None:
        built = [programs / f"ckd-{platform.replace('/', '-')}" for platform in platforms]
        lacks += [f"the file {path}" for path in built if not path.is_file()]
    return lacks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent / "dist", help="folder of the wheels")
    parser.add_argument("--version", help="version, in place of the git tag")
    parser.add_argument("--platform", action="append", choices=PLATFORMS, help="platform; all without it")
    parser.add_argument("--programs", type=pathlib.Path, help="folder of programs already built, such as ckd-linux-amd64")
    args = parser.parse_args()
    platforms = args.platform or list(PLATFORMS)
    if lacks := missing(platforms, args.programs):
        sys.exit("wheels cannot be built, not found:\n  " + "\n  ".join(lacks))
    version = args.version or described()
    for platform in platforms:
        wheel = build(platform, version, args.out, args.programs)
        print(f"{wheel}{' (untested)' if platform.startswith(UNTESTED) else ''}", flush=True)


if __name__ == "__main__":
    main()
