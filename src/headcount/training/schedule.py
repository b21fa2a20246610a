"""How the learning rate moves: a factor on the optimizer's rate, by optimizer step."""


class InverseSquareRoot:
    """Linear warm-up to 1 at `warmup_steps`, then proportional to 1 / sqrt(step): Vaswani et al. 2017, equation 3.

    Raises ValueError unless warmup_steps is 1 or more.
    """

    def __init__(self, warmup_steps: int = 2000) -> None:
        if warmup_steps < 1:
            raise ValueError(f"schedule.warmup_steps={warmup_steps}: must be 1 or more")
        self.warmup_steps = warmup_steps

    def __call__(self, step: int) -> float:
        """The factor at `step`, counted from 0."""
        return min((step + 1) / self.warmup_steps, (self.warmup_steps / (step + 1)) ** 0.5)
