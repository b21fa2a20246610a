"""Learning rate schedules: a factor on the optimizer's rate, by optimizer step, counted from 0. All begin with a linear
warm-up over `warmup_steps`."""

import logging
import math
from typing import Annotated

from annotated_types import Ge, Le

from headcount.settings import Positive

logger = logging.getLogger(__name__)

Share = Annotated[float, Ge(0), Le(1)]  # of the peak rate


class Constant:
    """Up to 1 at `warmup_steps`, then constant."""

    def __init__(self, *, warmup_steps: Positive) -> None:
        self.warmup_steps = warmup_steps

    def __call__(self, step: int) -> float:
        return min(1.0, (step + 1) / self.warmup_steps)


class InverseSquareRoot(Constant):
    """Up to 1 at `warmup_steps`, then proportional to 1 / sqrt(step): `Noam` without its constant."""

    def __call__(self, step: int) -> float:
        return min((step + 1) / self.warmup_steps, (self.warmup_steps / (step + 1)) ** 0.5)


class Noam(Constant):
    """d_model^-0.5 min(step^-0.5, step warmup_steps^-1.5): Vaswani et al. 2017, equation 3. The optimizer's rate is a
    factor on it, 1 in the paper."""

    def __init__(self, *, d_model: int, warmup_steps: Positive) -> None:
        super().__init__(warmup_steps=warmup_steps)
        self.d_model = d_model

    def __call__(self, step: int) -> float:
        return float(self.d_model**-0.5 * min((step + 1) ** -0.5, (step + 1) * self.warmup_steps**-1.5))


class Linear(Constant):
    """Up to 1 at `warmup_steps`, then down a straight line to `final` at `steps`, which comes after the last step:
    Devlin et al. 2019, "BERT". A run that is no longer than its warm-up has nothing else, and a warning says so."""

    def __init__(self, *, steps: int, warmup_steps: Positive, final: Share) -> None:
        super().__init__(warmup_steps=warmup_steps)
        self.steps = steps
        self.final = final
        if 0 < steps <= warmup_steps:
            logger.warning(
                "all %d steps are warm-up (%d), and the learning rate never falls: give schedule.warmup_steps=%d",
                *(steps, warmup_steps, max(1, steps // 3)),
            )

    def __call__(self, step: int) -> float:
        if step < self.warmup_steps or self.steps <= self.warmup_steps:
            return super().__call__(step)
        return self.final + (1 - self.final) * self.left(min(step, self.steps))

    def left(self, step: int) -> float:
        """The share of the way down that is left, 1 after the warm-up and 0 at `steps`."""
        return (self.steps - step) / (self.steps - self.warmup_steps)


class Cosine(Linear):
    """As `Linear`, but down half a cosine: Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts."""

    def left(self, step: int) -> float:
        done = (step - self.warmup_steps) / (self.steps - self.warmup_steps)
        return (1 + math.cos(math.pi * done)) / 2


class Trapezoid(Linear):
    """As `Linear`, but constant until the last share `decay` of the run's steps: Hägele et al. 2024, "Scaling laws and
    compute-optimal training beyond fixed training durations".

    Until the fall begins, the rates of a shorter run and of a longer one are the same. Raises ValueError for a fall
    that would begin in the warm-up.
    """

    def __init__(self, *, steps: int, warmup_steps: Positive, decay: float, final: Share) -> None:
        super().__init__(steps=steps, warmup_steps=warmup_steps, final=final)
        most = 1 - warmup_steps / steps if steps > warmup_steps else 1.0
        if not 0 < decay <= most:
            raise ValueError(
                f"schedule.decay={decay}: a share of the run's steps, above 0 and, after the warm-up of "
                f"{warmup_steps} of {steps}, at most {most:.3g}"
            )
        self.decay = decay

    def left(self, step: int) -> float:
        return min(1.0, (self.steps - step) / (self.decay * self.steps))
