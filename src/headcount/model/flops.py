"""Operations of a forward pass for each token: multiply-adds of the matrix products."""

import torch
from torch.backends import cudnn, mkldnn
from torch.utils.flop_counter import FlopCounterMode

from headcount.model.encoder_decoder import EncoderDecoder


@torch.no_grad()
def operations_per_token(model: EncoderDecoder, source: int, target: int) -> int:
    """Multiply-adds in the matrix products of a forward pass, with the output layer, for each token of a sentence pair
    of `source` and `target` tokens. Training takes about three times as many. Softmax, norms and dropout are not
    counted.
    """
    training = model.training
    model.eval()
    ids = [torch.zeros(1, length, dtype=torch.int64, device=model.device) for length in (source, target)]
    # Recurrent cells as products: oneDNN and cuDNN have a cell in one operator, which is counted as 0.
    products = mkldnn.flags(enabled=False, allow_tf32=None)
    with products, cudnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        model.output(model(ids[0], torch.ones_like(ids[0], dtype=torch.bool), ids[1]))
    model.train(training)
    return round(counter.get_total_flops() / 2 / (source + target))
