"""Learning rate schedules: a factor on the optimizer's rate, by optimizer step, counted from 0.

All begin with a linear warm-up over `warmup_steps`. Raise ValueError for fewer than 1.
"""

import math


class _WarmUp:
    def __init__(self, *, warmup_steps: int) -> None:
        if warmup_steps < 1:
            raise ValueError(f"schedule.warmup_steps={warmup_steps}: must be 1 or more")
        self.warmup_steps = warmup_steps


class InverseSquareRoot(_WarmUp):
    """Up to 1 at `warmup_steps`, then proportional to 1 / sqrt(step): Vaswani et al. 2017, equation 3, without its
    constant."""

    def __call__(self, step: int) -> float:
        return min((step + 1) / self.warmup_steps, (self.warmup_steps / (step + 1)) ** 0.5)


class Noam(_WarmUp):
    """d_model^-0.5 min(step^-0.5, step warmup_steps^-1.5): Vaswani et al. 2017, equation 3. The optimizer's rate is a
    factor on it, 1 in the paper."""

    def __init__(self, *, d_model: int, warmup_steps: int) -> None:
        super().__init__(warmup_steps=warmup_steps)
        self.d_model = d_model

    def __call__(self, step: int) -> float:
        return float(self.d_model**-0.5 * min((step + 1) ** -0.5, (step + 1) * self.warmup_steps**-1.5))


class Cosine(_WarmUp):
    """Up to 1 at `warmup_steps`, then down half a cosine to `final` at `steps`: Loshchilov and Hutter 2017, "SGDR",
    equation 5, without restarts. Steps count from 0, so `steps` comes after the last one, whose rate is above `final`.

    Raises ValueError also for `steps` not beyond the warm-up, or `final` outside [0, 1].
    """

    def __init__(self, *, steps: int, warmup_steps: int, final: float) -> None:
        super().__init__(warmup_steps=warmup_steps)
        if steps <= warmup_steps:
            raise ValueError(
                f"schedule.steps={steps}: must be more than schedule.warmup_steps={warmup_steps}; it is where the rate "
                "reaches its end, commonly the last step of training"
            )
        if not 0 <= final <= 1:
            raise ValueError(f"schedule.final={final}: a share of the peak rate, from 0 to 1")
        self.steps = steps
        self.final = final

    def __call__(self, step: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = min(1.0, (step - self.warmup_steps) / (self.steps - self.warmup_steps))
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2


class Constant(_WarmUp):
    """Up to 1 at `warmup_steps`, then constant."""

    def __call__(self, step: int) -> float:
        return min(1.0, (step + 1) / self.warmup_steps)
