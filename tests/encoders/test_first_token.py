"""The first token's last hidden state, computed alone, is the one that the whole layer gives it."""

import copy
from typing import Any

import pytest
import torch
import transformers
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel
from transformers.models.bert import modeling_bert

from pipeline.encoders.torch import limit_last_layer_to_first_token

SHAPE = {
    "vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 40, "pad_token_id": 1,
}  # fmt: skip


def hidden(body: Any, mask: torch.Tensor) -> torch.Tensor:
    ids = torch.arange(2, 2 + mask.numel()).reshape(mask.shape) * mask + (1 - mask)
    with torch.inference_mode():
        states: torch.Tensor = body(input_ids=ids, attention_mask=mask).last_hidden_state
    return states


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "XLMRoberta"])
def test_the_first_token_s_state_is_the_same(kind: str) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SHAPE, initializer_range=0.5)
    whole = getattr(transformers, f"{kind}Model")(config).eval()
    part = copy.deepcopy(whole)
    limit_last_layer_to_first_token(part)
    for lengths in ([9, 9], [9, 4, 1], [1]):
        mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()[:, : lengths[0]]
        states = hidden(part, mask)
        assert states.shape == (len(lengths), 1, 24)
        torch.testing.assert_close(states, hidden(whole, mask)[:, :1], atol=1e-5, rtol=0)


class Mixing(BertModel):  # type: ignore[misc]
    """As a model's own Python file may have it: more is done with the last states of all tokens."""

    def forward(self, **inputs: Any) -> Any:
        given = super().forward(**inputs)
        given.last_hidden_state = given.last_hidden_state + given.last_hidden_state.mean(1, keepdim=True)
        return given


class BertLayer(modeling_bert.BertLayer):  # type: ignore[misc]
    """Another layer of a name that transformers has."""

    def forward(self, hidden: Any, *more: Any, **named: Any) -> Any:
        return super().forward(hidden, *more, **named) + hidden


def with_own_layers() -> BertModel:
    body = BertModel(BertConfig(**SHAPE))
    body.encoder.layer = torch.nn.ModuleList([BertLayer(body.config)])
    return body


@pytest.mark.parametrize(
    "body",
    [
        BertModel(BertConfig(**SHAPE, is_decoder=True)),
        MPNetModel(MPNetConfig(**SHAPE)),
        Mixing(BertConfig(**SHAPE)),
        with_own_layers(),
        BertModel(BertConfig(**{**SHAPE, "num_hidden_layers": 0})),
    ],
    ids=["decoder", "mpnet", "a model of its own", "layers of its own", "no layer"],
)
def test_another_architecture_stays_as_it_is(body: Any) -> None:
    body.eval()
    mask = torch.tensor([[1, 1, 1, 1, 0]])
    before = hidden(body, mask)
    limit_last_layer_to_first_token(body)
    torch.testing.assert_close(hidden(body, mask), before, atol=0, rtol=0)
