"""Runs parts of the test suite on arm64 by emulation: Debian's root, wheels for aarch64, and a Neoverse.

    sudo .venv/bin/python scripts/emulate_arm.py FOLDER [PART...]

It needs root, qemu-user-static and debootstrap, 4 GB in FOLDER, which is outside this repository and kept for
the next call, and time: an emulated processor is 20 to 50 times as slow. Without a PART it lists them.
The versions are those installed here, but for `REPLACED` and what has no wheel.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "3.11.2"  # of Debian 12
MARKERS = {"platform_machine": "aarch64", "python_full_version": PYTHON, "python_version": "3.11"}
REPLACED = {"torch": "2.10.0"}  # the newest whose wheel for aarch64 needs no CUDA
LEFT_OUT = {"benchmarco", "mypy", "pytrec_eval-terrier", "ruff"}  # the third has no wheel for aarch64
PARTS = {
    "formats": ["tests/formats"],
    "metrics": ["tests/metrics"],
    "storage": ["tests/storage"],
    "search": ["tests/search"],
    "comparison": ["tests/comparison"],
    "data": ["tests/data"],
    "engines": ["tests/engines/test_files.py", "tests/engines/test_processes.py"],
    "machine": ["tests/core", "tests/cli/test_doctor.py"],
    "retrievers": ["tests/retrievers"],
    "studies": ["tests/studies", "--ignore=tests/studies/page"],
    "pages": ["tests/studies/page"],
}
"""What pytest is given, by part."""
ENGINES, TRAINING = "tests/engines/test_processes.py", "tests/studies/gate/test_training.py"
LATENCY = "tests/studies/latency/test_latency.py"
DESELECTED = {
    f"{ENGINES}::test_they_write_the_bytes_that_one_process_writes_also_if_all_are_killed": "too slow",
    f"{ENGINES}::test_nothing_runs_on_after_ctrl_c_or_when_the_parent_is_killed": "too slow",
    f"{LATENCY}::test_a_served_model_has_the_share_of_the_network": "too slow",
    f"{LATENCY}::test_a_server_is_measured_under_load_and_its_errors_are_counted": "too slow",
    f"{TRAINING}::test_a_checkpoint_is_the_best_only_if_it_is_shown_to_be_better": "datasets cannot pickle",
}
"""Tests that are not run, and why: four encode with MiniLM; in one, datasets fails at a class of PyArrow."""
CPUINFO = """\
processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
"""What Linux says of a Neoverse N1."""
CPU = "neoverse-n1"
"""QEMU's name of it. Its default has further features, with which OpenVINO crashes."""
SYS = {
    **dict.fromkeys(("possible", "present", "online"), "0"),
    **dict.fromkeys(("cpu0/topology/core_id", "cpu0/topology/physical_package_id"), "0"),
    **dict.fromkeys(("cpu0/topology/core_siblings", "cpu0/topology/thread_siblings"), "1"),
    "cpu0/regs/identification/midr_el1": "0x00000000413fd0c1",
}
"""Files of /sys/devices/system/cpu, which OpenVINO reads."""
REGISTRATION = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
BINFMT = Path("/proc/sys/fs/binfmt_misc")


def wheels() -> list[str]:
    """What this project and its tests need on aarch64, in the versions that are installed here."""
    found: dict[str, str] = {}
    seen = set[tuple[str, str]]()
    todo = [Requirement("benchmarco[test]")]
    while todo:
        required = todo.pop()
        for extra in required.extras or {""}:
            try:
                known = metadata.distribution(required.name)
            except metadata.PackageNotFoundError:
                continue
            name = known.metadata["Name"]
            if (name, extra) in seen or name in LEFT_OUT - {"benchmarco"}:
                continue
            seen.add((name, extra))
            found[name] = REPLACED.get(name, known.version)
            wanted = map(Requirement, known.requires or ())
            todo += [w for w in wanted if w.marker is None or w.marker.evaluate({**MARKERS, "extra": extra})]
    return [f"{name}=={version}" for name, version in sorted(found.items()) if name not in LEFT_OUT]


def build(folder: Path) -> None:
    """Make Debian's root and the folder of wheels, unless they are there."""
    missing = [tool for tool in ("debootstrap", "qemu-aarch64-static") if not shutil.which(tool)]
    if missing:
        sys.exit(f"not found: {' and '.join(missing)}. apt-get install qemu-user-static debootstrap")
    if not (BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT)], check=True)
    if not (BINFMT / "qemu-aarch64").exists():
        (BINFMT / "register").write_text(REGISTRATION.read_text(encoding="ascii"), encoding="ascii")
    debian, site = folder / "root", folder / "site"
    if not (folder / "built").exists():
        command = ["debootstrap", "--arch=arm64", "--variant=minbase", "--include=python3", "bookworm"]
        subprocess.run([*command, str(debian)], check=True)
        (folder / "built").touch()
    if not site.exists():
        glibc = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(36, 16, -1)]
        into = ["--target", str(site.with_suffix(".new")), "--python-version", PYTHON]
        only = ["--no-deps", "--only-binary=:all:", *glibc, "--platform=manylinux2014_aarch64"]
        subprocess.run([sys.executable, "-m", "pip", "install", *into, *only, *wheels()], check=True)
        site.with_suffix(".new").rename(site)
    known = metadata.distribution("benchmarco")
    described = known.read_text("METADATA") or known.read_text("PKG-INFO") or ""
    (site / "benchmarco.egg-info").mkdir(exist_ok=True)
    (site / "benchmarco.egg-info" / "PKG-INFO").write_text(described, encoding="utf-8")


def unbuilt() -> list[str]:
    """The test files that import what has no wheel."""
    files = (ROOT / "tests").rglob("test_*.py")
    imports = re.compile("^(import|from) pytrec_eval", re.M)
    found = [file for file in files if imports.search(file.read_text(encoding="utf-8"))]
    return sorted(str(file.relative_to(ROOT)) for file in found)


def run(folder: Path, arguments: list[str]) -> int:
    """Run pytest in the root, in mounts of its own; its exit code."""
    debian = folder / "root"
    project = debian / "project"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).exists()}
    for path in project.rglob("*.py"):
        if str(path.relative_to(project)) not in names:
            path.unlink()
    for name in names:  # with their times, so that what was compiled from them stays
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, project / name)
    (debian / "site").mkdir(exist_ok=True)
    (debian / "cpuinfo").write_text(CPUINFO, encoding="ascii")
    for name, value in SYS.items():
        file = debian / "sys/devices/system/cpu" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n", encoding="ascii")
    script = f"""
        set -e
        mount -t proc proc root/proc
        mount --bind root/cpuinfo root/proc/cpuinfo
        mount --bind site root/site
        exec chroot root env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 PYTHONPATH=/project:/site \
            QEMU_CPU={CPU} HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 \
            sh -c 'cd /project && exec "$@"' - python3 -m pytest "$@"
    """
    ours = [
        "-rs",
        "-p",
        "no:cacheprovider",
        "-o",
        "faulthandler_timeout=0",
        *(f"--ignore={path}" for path in unbuilt()),
        *(f"--deselect={test}" for test in DESELECTED),
    ]
    command = ["unshare", "--mount", "sh", "-c", script, "-", *ours, *arguments]
    return subprocess.run(command, cwd=folder, check=False).returncode


def main() -> None:
    """Build, and run the parts."""
    folder, *parts = sys.argv[1:] or [""]
    if not folder or not set(parts) <= PARTS.keys() | {part for part in parts if re.match(r"tests|-", part)}:
        sys.exit(f"{__doc__}\nParts: {', '.join(PARTS)}; or paths and options for pytest")
    place = Path(folder).resolve()
    if place.is_relative_to(ROOT):
        sys.exit(f"{place} is inside this repository: name another folder")
    place.mkdir(parents=True, exist_ok=True)
    build(place)
    print("Left out, as pytrec_eval has no wheel:", *unbuilt())
    print("Left out:", *(f"{test} ({why})" for test, why in DESELECTED.items()))
    started = time.perf_counter()
    code = run(place, [path for part in parts for path in PARTS.get(part, [part])])
    print(f"{' '.join(parts)}: exit code {code}, {time.perf_counter() - started:.0f} s")
    sys.exit(code)


if __name__ == "__main__":
    main()
