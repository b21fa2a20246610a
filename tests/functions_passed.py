"""How many functions of headcount one training step and one translation pass: `python tests/functions_passed.py`."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import torch
from built import ONE_LAYER, built
from test_translator import Letters

import headcount
from headcount.decoding.translator import Translator

SOURCE = str(Path(headcount.__file__).parent)
INNER = ("<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>")


def passed(call: Callable[[], object]) -> list[str]:
    """The functions of the package that `call` enters, in order, each once."""
    codes: dict[CodeType, None] = {}

    def enter(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name not in INNER:
            codes.setdefault(code)

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [f"{code.co_filename.removeprefix(SOURCE)[1:]} {code.co_qualname}" for code in codes]


def training_step() -> list[str]:
    """Of the forward pass, the loss and the backward pass of a batch of two pairs."""
    torch.manual_seed(1)
    model, loss = built("model/nano", vocab_size=60, **ONE_LAYER).train(), built("loss/label_smoothing")
    source, target = torch.randint(4, 60, (2, 7)), torch.randint(4, 60, (2, 6))
    mask = torch.ones(2, 7, dtype=torch.bool)

    def step() -> None:
        hidden = model(source, mask, target)
        loss(hidden.flatten(0, 1), model.output.weight, target.flatten(), None)[0].backward()

    return passed(step)


def translation() -> list[str]:
    """Of a line, by beam search."""
    model = built("model/nano", vocab_size=60, **ONE_LAYER).eval()
    translator = Translator(model, Letters(), built("search/beam", beam=4, max_extra=3), (0, 2, 3))
    return passed(lambda: translator.translate(["bdf"]))


if __name__ == "__main__":
    for about, names in {"a training step": training_step(), "a translation": translation()}.items():
        counted = f"{len(names)} functions in {len({name.split()[0] for name in names})} files"
        sys.stdout.write(f"{about} passes {counted}:\n" + "".join(f"  {name}\n" for name in names))
