"""Types of a model's settings: the annotations of its constructor, which `headcount.settings.check` reads."""

import math
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

Size = Annotated[int, Ge(1), Le(2**20)]
Layers = Annotated[int, Ge(1), Le(256)]
Heads = int | Sequence[int]  # of every layer, or one number for each
Probability = Annotated[float, Ge(0), Lt(1)]
Factor = Annotated[float, Gt(0), Lt(math.inf)]
