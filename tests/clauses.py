"""A toy corpus of short clauses."""

import itertools

NOUNS = {"dog": "Hund", "cat": "Kater", "horse": "Gaul", "bird": "Vogel", "bear": "Bär", "wolf": "Wolf"}
VERBS = {"sees": "sieht", "hears": "hört", "seeks": "sucht", "likes": "mag", "chases": "jagt"}
CLAUSES = [
    (f"the {a} {verb} the {b}", f"der {NOUNS[a]} {VERBS[verb]} den {NOUNS[b]}")
    for a, verb, b in itertools.product(NOUNS, VERBS, NOUNS)
]
