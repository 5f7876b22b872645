"""Adapters of peft, merged into the network that they were trained on, in memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipeline.core.errors import InputError
from pipeline.models.files import ADAPTER_FOLDER
from pipeline.models.model import ResolvedBase

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PREFIX = "base_model.model."
"""What peft puts before the name of each weight."""
MISMATCH = re.compile(r"size mismatch for (\S+?):?\s.*?\[([\d, ]*)\].*?\[([\d, ]*)\]", re.DOTALL)
"""What torch says of a weight of another shape: its name, its shape in the files and in the network."""


def merge_adapter(network: PreTrainedModel, model: ResolvedBase) -> PreTrainedModel:
    """A loaded network with the adapter of its model merged into it.

    Raises:
        InputError: The adapter cannot be merged, or does not fit the network: it has another rank, layers
            that the network lacks, or other tokens. transformers would drop such weights, and give the base
            model's vectors.
    """
    from peft import PeftConfig, PeftModel
    from peft.utils.save_and_load import load_peft_weights, set_peft_model_state_dict

    folder = model.files.folder() / ADAPTER_FOLDER
    config = PeftConfig.from_pretrained(str(folder))
    if config.is_prompt_learning:
        raise InputError(
            f"the adapter of model '{model.name}' is of the type {config.peft_type.value}, of tokens before "
            "each text",
            allowed="an adapter of weights, such as LORA",
            fix="train one, or encode with peft yourself, and set model.backend to precomputed",
        )
    weights = load_peft_weights(str(folder), device="cpu")
    inner = f"{PREFIX}{network.base_model_prefix}."
    if all(name.startswith(inner) for name in weights):  # of a network with a head, as …ForCausalLM
        weights = {PREFIX + name.removeprefix(inner): weight for name, weight in weights.items()}
    embedded = network.get_input_embeddings().weight.shape[0]
    tokens = [len(weight) for name, weight in weights.items() if re.search(r"embed\w*\.weight$", name)]
    if max(tokens, default=embedded) != embedded:
        raise _misfit(model, f"it has embeddings of {max(tokens)} tokens, and its base has {embedded}")
    try:
        wrapped = PeftModel(network, config)
        result = set_peft_model_state_dict(wrapped, weights)
        lacking = [name for name in result.missing_keys if ".default" in name]  # peft's name of the adapter
        for names, clause in (
            (result.unexpected_keys, f"belong to no layer of {type(network).__name__}"),
            (lacking, "are not in its file"),
        ):
            if names:
                raise _misfit(model, f"weights {clause}, such as {min(names)}")
        merged: PreTrainedModel = wrapped.merge_and_unload(safe_merge=True)
    except (RuntimeError, TypeError, ValueError) as error:
        sizes = MISMATCH.search(str(error))
        reason = f"{sizes[1]} has the shape [{sizes[2]}], and is declared as [{sizes[3]}]" if sizes else error
        raise _misfit(model, str(reason).splitlines()[0].rstrip(".")) from None
    return merged


def _misfit(model: ResolvedBase, found: str) -> InputError:
    return InputError(
        f"the adapter of model '{model.name}', {model.files.adapter}, does not fit its base "
        f"{model.files.base}: {found}",
        allowed="an adapter and the base model that it was trained on",
        fix="set base_model_name_or_path of its adapter_config.json to that model's folder",
    )
