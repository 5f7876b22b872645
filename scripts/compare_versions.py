"""Compare the hidden states of tiny networks between two versions of transformers, bit by bit.

Run it in two environments, on one folder:

    FIRST/bin/python scripts/compare_versions.py FOLDER
    SECOND/bin/python scripts/compare_versions.py FOLDER

The first run makes the networks, of random weights, and writes `VERSION.npz`; the second one reads the same
weights, writes its own file and prints every network whose states differ from those of another version.
`pipeline.models.model.forward_changes` has what is known from it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

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


def main() -> None:
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
