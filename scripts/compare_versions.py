"""What other versions of libraries change: the lowest that are allowed, and two of transformers.

    .venv/bin/python scripts/compare_versions.py lowest FOLDER [PART...]

installs the lowest versions that pyproject.toml allows into FOLDER, outside this repository, by `uv` from
PyPI, says which bounds cannot be met, and runs parts of the suite (those of `emulate_arm.py`) with them.

    FIRST/bin/python scripts/compare_versions.py FOLDER
    SECOND/bin/python scripts/compare_versions.py FOLDER

compare the hidden states of tiny networks, bit by bit, in two environments. The first run makes the networks,
of random weights, and writes `VERSION.npz`; the second one reads the same weights, writes its own file and
prints every network whose states differ from those of another version.
`ResolvedModel.recipe` has what is known from it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from emulate_arm import PARTS, ROOT
from packaging.requirements import Requirement
from packaging.version import Version

SHAPE = {
    "vocab_size": 200, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96,
}  # fmt: skip
EMBEDDED = {**SHAPE, "embedding_size": 32}
DECODER = {**SHAPE, "num_key_value_heads": 2}
NETWORKS = {
    **dict.fromkeys(("Bert", "Roberta", "XLMRoberta", "MPNet", "DebertaV2"), SHAPE),
    **dict.fromkeys(("Electra", "Albert"), EMBEDDED),
    "DistilBert": {"vocab_size": 200, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96},
    "ModernBert": {**SHAPE, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    **dict.fromkeys(("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2"), DECODER),
}
"""The settings of each architecture; decoders are also made with `is_causal: false`."""


def variants() -> dict[str, tuple[str, dict[str, object]]]:
    """By name the architecture and the settings of each network."""
    plain: dict[str, tuple[str, dict[str, object]]] = {name: (name, {**NETWORKS[name]}) for name in NETWORKS}
    decoders = [name for name, settings in NETWORKS.items() if settings is DECODER]
    return plain | {f"{name}-bidirectional": (name, {**DECODER, "is_causal": False}) for name in decoders}


def lowest(folder: Path, parts: list[str]) -> int:
    """Install the lowest versions and run parts of the suite with them; the exit code of pytest."""
    if folder.resolve().is_relative_to(ROOT):
        sys.exit(f"{folder} is inside this repository: name another folder")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = ["http", "int8", "onnx", "openvino"]
    named = [
        *project["dependencies"],
        *(each for name in extras for each in project["optional-dependencies"][name]),
    ]
    python = str(folder / "bin" / "python")
    if not (folder / "installed").exists():
        subprocess.run(["uv", "venv", "--clear", "--python", sys.executable, str(folder)], check=True)
        install = ["uv", "pip", "install", "--python", python, "--only-binary=:all:"]
        tools = [
            "pytest",
            "hypothesis",
            "psutil",
            "ir_measures",
            "playwright",
            "repro_eval",
            "pytrec_eval-terrier",
            "setuptools",
        ]
        pinned = [f"{tool}=={metadata.version(tool)}" for tool in tools]
        subprocess.run([*install, "--resolution=lowest-direct", *named, *pinned], check=True)
        (folder / "installed").touch()
    listed = subprocess.run(
        ["uv", "pip", "freeze", "--python", python], capture_output=True, text=True, check=True
    )
    versions = dict(line.lower().replace("_", "-").split("==") for line in listed.stdout.splitlines())
    for requirement in map(Requirement, named):
        version = Version(versions[requirement.name.lower().replace("_", "-")])
        if all(Version(specifier.version) != version for specifier in requirement.specifier):
            print(f"{requirement}: {version} is the lowest that the others allow")
    known = metadata.distribution("benchmarco")
    described = known.read_text("METADATA") or known.read_text("PKG-INFO") or ""
    (folder / "described" / "benchmarco.egg-info").mkdir(parents=True, exist_ok=True)
    (folder / "described" / "benchmarco.egg-info" / "PKG-INFO").write_text(described, encoding="utf-8")
    tests = [path for part in parts for path in PARTS.get(part, [part])]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": f"{folder / 'described'}{os.pathsep}{ROOT}",
    }
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode if tests else 0


def main() -> None:
    """Compare hidden states, or run parts of the suite with the lowest versions."""
    if sys.argv[1] == "lowest":
        sys.exit(lowest(Path(sys.argv[2]).absolute(), sys.argv[3:]))
    import numpy as np
    import torch
    import transformers

    folder = Path(sys.argv[1])
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 200, (3, 40), generator=generator)
    mask = (torch.arange(40) < torch.tensor([[40], [30], [9]])).long()
    states = {}
    for name, (kind, settings) in variants().items():
        path = folder / name
        if not path.exists():
            torch.manual_seed(0)
            config = getattr(transformers, f"{kind}Config")(**settings)
            getattr(transformers, f"{kind}Model")(config).save_pretrained(path)
        network = transformers.AutoModel.from_pretrained(path).float().eval()
        with torch.inference_mode():
            states[name] = (network(input_ids=ids, attention_mask=mask)[0] * mask[..., None]).numpy()
    for other in sorted(folder.glob("*.npz")):
        with np.load(other) as stored:
            for name in sorted(states.keys() & {*stored}):
                if not np.array_equal(states[name], stored[name]):
                    difference = np.abs(states[name] - stored[name]).max()
                    print(f"{name}: {other.stem} differs by {difference:.2g} at most")
    np.savez(folder / f"{transformers.__version__}.npz", allow_pickle=False, **states)


if __name__ == "__main__":
    main()
