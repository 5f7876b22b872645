"""What people ship beside weights, made for tests: ONNX files and adapters of peft."""

import json
from pathlib import Path
from typing import Any

import torch
from workplaces import read_json

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
RANK = 4


class Exported(torch.nn.Module):
    """A network with some inputs and one output: `last_hidden_state`, or what `head` makes of it."""

    def __init__(self, network: Any, inputs: tuple[str, ...], head: Any) -> None:
        super().__init__()
        self.network, self.inputs, self.head = network, inputs, head

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.inputs, given, strict=True))
        states = self.network(**named).last_hidden_state
        return self.head(states, named["attention_mask"]) if self.head else states


def export(
    source: Path,
    target: Path,
    inputs: tuple[str, ...] = INPUTS,
    output: str = "last_hidden_state",
    head: Any = None,
) -> Path:
    """Write the network of a folder as an ONNX file."""
    from transformers import AutoModel

    target.parent.mkdir(parents=True, exist_ok=True)
    network = Exported(AutoModel.from_pretrained(source, attn_implementation="eager").eval(), inputs, head)
    torch.onnx.export(
        network.eval(),
        tuple(torch.ones((2, 8), dtype=torch.int64) for _ in inputs),
        str(target),
        input_names=list(inputs),
        output_names=[output],
        dynamic_axes={name: {0: "texts", 1: "tokens"} for name in inputs} | {output: {0: "texts"}},
        dynamo=False,
    )
    return target


def write_graph(target: Path) -> None:
    """Write an ONNX file that gives the token ids as they are, under the name of hidden states."""
    from onnx import TensorProto, helper, save

    given, made = (
        helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"])
        for name in ("input_ids", "last_hidden_state")
    )
    node = helper.make_node("Identity", ["input_ids"], ["last_hidden_state"])
    save(helper.make_model(helper.make_graph([node], target.stem, [given], [made])), target)


def quantize(source: Path) -> Path:
    """Write an ONNX file in int8 beside itself, as `model_quantized.onnx`."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = source.with_name("model_quantized.onnx")
    quantize_dynamic(source, target, weight_type=QuantType.QInt8)
    return target


def train_adapter(base: Path, folder: Path) -> Path:
    """Save an adapter of a base model, whose weights are random."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    torch.manual_seed(2)
    config = LoraConfig(r=RANK, lora_alpha=16, target_modules=["query", "value"], init_lora_weights=False)
    get_peft_model(AutoModel.from_pretrained(base), config).save_pretrained(folder)
    return change_adapter(folder, base_model_name_or_path=str(base))


def change_adapter(folder: Path, **settings: object) -> Path:
    """Change settings of an adapter."""
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**read_json(path), **settings}), encoding="utf-8")
    return folder
