"""Syntax: phrases and clauses that write themselves in English and in German.

A phrase writes its words into a `Writer`, each with the keys of the meanings that it carries; words of both languages
that share a key are aligned. A phrase has eight keys: `base` for its head, others for its article, negation and so on;
a noun phrase has four for its adjectives.

Phrases are frozen: `dataclasses.replace` makes another one. It has other keys, so a sentence must not hold both a
phrase and a copy of it where one is meant, as by a pronoun and its antecedent.

Word order is fixed, so that each source has one translation. English: subject, manner, verb, objects, goal, place,
time. German middle field: time, manner, dative, place, accusative, "nicht", predicate, goal; without an object, "nicht"
precedes the place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headcount.grammar import english, german
from headcount.grammar.german import MODALS
from headcount.grammar.lexicon.entries import Adjective, Adverb, Noun, Preposition, Verb
from headcount.grammar.sentence import Writer


class Phrase:
    """A part of a sentence, with keys of its own."""

    @property
    def base(self) -> int:
        """The key of the head, unique to this object; the next seven keys belong to the phrase too."""
        return id(self) * 8


@dataclass(eq=False, frozen=True)
class NounPhrase(Phrase):
    """A noun with what belongs to it.

    article: "the", "a" (none in the plural) or "" (before a name, or after an owner). sense: the phrase whose noun
    decides the translation of this one.
    """

    noun: Noun
    plural: bool = False
    article: str = "the"
    adjectives: Sequence[Adjective] = ()
    owner: Noun | None = None
    genitive: "NounPhrase | None" = None
    attribute: "PrepositionalPhrase | None" = None
    relative: "Clause | None" = None
    sense: "NounPhrase | None" = None

    @property
    def gender(self) -> str:
        """Gender of the head noun."""
        return self.noun.gender

    def english(self, out: Writer) -> None:
        """Write the phrase in English."""
        base = self.base
        start = len(out.words)
        for i, adjective in enumerate(self.adjectives):
            out.add(adjective.english, base + 3 + i)
        out.add(english.noun(self.noun, self.plural), base)
        if self.owner:
            out.words.insert(start, self.owner.english + "'s")
            out.keys.insert(start, (base + 2,))
        elif self.article == "the" or (self.article == "a" and not self.plural):
            word = "the" if self.article == "the" else english.article(out.words[start])
            out.words.insert(start, word)
            out.keys.insert(start, (base + 1,))
        if self.sense:
            out.links.append(("sense", base, self.sense.base))
        if self.genitive:
            out.add("of", self.genitive.base + 1)
            self.genitive.english(out)
        if self.attribute:
            self.attribute.english(out)
        if self.relative:
            self.relative.relative_english(out, self)

    def german(self, out: Writer, case: str, preposition: tuple[str, int] | None = None, negated: int = 0) -> None:
        """Write the phrase in German. negated: the key of a negation that its article contains; 0 for none."""
        base = self.base
        kind = "no" if negated else self.article
        word = "" if self.owner or not kind else german.article(kind, self.gender, self.plural, case)
        if preposition:
            merged = german.CONTRACTIONS.get((preposition[0], word)) if kind == "the" else None
            if merged:
                out.add(merged, preposition[1], base + 1)
                word = ""
            else:
                out.add(preposition[0], preposition[1])
        if word:
            out.add(word, base + 1, *([negated] if negated else []))
        if self.owner:
            out.add(german.noun(self.owner, False, "genitive"), base + 2)
        declension = "weak" if kind == "the" else "mixed" if kind == "no" or (kind and not self.plural) else "strong"
        if self.owner:
            declension = "strong"
        for i, adjective in enumerate(self.adjectives):
            form = german.adjective(adjective, declension, self.gender, self.plural, case)
            out.add(form, base + 3 + i)
        out.add(german.noun(self.noun, self.plural, case), base)
        if self.genitive:
            self.genitive.german(out, "genitive")
        if self.attribute:
            self.attribute.german(out)
        if self.relative:
            self.relative.relative_german(out, self)


@dataclass(eq=False, frozen=True)
class Pronoun(Phrase):
    """ "it", "he", "she" or "they". antecedent: what the pronoun refers to; None for nobody in the sentence."""

    english_word: str
    antecedent: NounPhrase | None = None

    @property
    def plural(self) -> bool:
        """Whether the verb is in the plural."""
        return self.english_word == "they"

    def english(self, out: Writer) -> None:
        """Write the pronoun in English, with its link."""
        out.add(self.english_word, self.base)
        if self.antecedent:
            out.links.append(("antecedent", self.base, self.antecedent.base))

    def german(self, out: Writer, case: str) -> None:
        """Write the pronoun, always a subject, in the gender of its antecedent."""
        gender = {"he": "m", "she": "f", "they": "f"}.get(self.english_word)
        if gender is None:
            gender = self.antecedent.gender if self.antecedent else "n"
        out.add({"m": "er", "f": "sie", "n": "es"}[gender], self.base)


@dataclass(eq=False, frozen=True)
class Demonstrative(Phrase):
    """ "that one": a demonstrative pronoun as the subject, in German the same word as the relative pronoun."""

    antecedent: NounPhrase
    plural: bool = False

    def english(self, out: Writer) -> None:
        """Write the pronoun in English, with its link."""
        out.add("that one", self.base)
        out.links.append(("antecedent", self.base, self.antecedent.base))

    def german(self, out: Writer, case: str) -> None:
        """Write the pronoun in the gender of its antecedent."""
        out.add(german.relative(self.antecedent.gender, False, case), self.base)


@dataclass(eq=False, frozen=True)
class PrepositionalPhrase(Phrase):
    """A preposition and its noun phrase. more: further noun phrases that it governs, as a list "a, b and c"."""

    preposition: Preposition
    phrase: NounPhrase
    more: Sequence[NounPhrase] = ()

    def english(self, out: Writer) -> None:
        """Write the phrase in English."""
        out.add(self.preposition.english, self.base)
        self.phrase.english(out)
        self._rest(out, lambda phrase: phrase.english(out), "and")

    def german(self, out: Writer) -> None:
        """Write the phrase in German, in the case that the preposition governs."""
        case = self.preposition.case
        self.phrase.german(out, case, (self.preposition.german, self.base))
        self._rest(out, lambda phrase: phrase.german(out, case), "und")

    def _rest(self, out: Writer, write: Callable[[NounPhrase], None], joint: str) -> None:
        for i, phrase in enumerate(self.more):
            out.add(joint if i == len(self.more) - 1 else ",", phrase.base + 7)
            write(phrase)


Subject = NounPhrase | Pronoun | Demonstrative


@dataclass(eq=False, frozen=True)
class Clause(Phrase):
    """A clause.

    tense: "past", "present" or a modal verb. front: what comes first, "time", "place", or an adverb that connects two
    clauses. inverted: whether the verb comes first, after a subordinate clause. gap: what a relative pronoun replaces,
    "subject" or "object"; empty for none. infinitive, that: clauses at its end.
    """

    subject: Subject
    verb: Verb
    tense: str
    object: NounPhrase | None = None
    recipient: NounPhrase | None = None
    predicate: Adjective | None = None
    time: Adverb | None = None
    manner: Adverb | None = None
    place: PrepositionalPhrase | None = None
    goals: Sequence[PrepositionalPhrase] = ()
    negated: bool = False
    front: "str | Adverb | None" = None
    inverted: bool = False
    gap: str = ""
    infinitive: "Infinitive | None" = None
    that: "Subordinate | None" = None

    @property
    def plural(self) -> bool:
        """Whether the verb is in the plural."""
        return self.subject.plural

    # English

    def english(self, out: Writer) -> None:
        """Write a main clause, or what follows a conjunction, in English."""
        if isinstance(self.front, Adverb):
            out.add(self.front.english, self.base + 5)
        elif self.front == "time" and self.time:
            out.add(self.time.english, self.base + 4)
        elif self.front == "place" and self.place:
            self.place.english(out)
        self.subject.english(out)
        self._english_manner(out)
        self._english_rest(out)

    def _english_manner(self, out: Writer) -> None:
        if self.manner:
            out.add(self.manner.english, self.base + 7)

    def _english_rest(self, out: Writer) -> None:
        self._collect(out)
        base, verb = self.base, self.verb
        if self.tense in MODALS:
            if self.negated and self.tense == "can":
                out.add("cannot", base + 1, base + 2)
            else:
                out.add(self.tense, base + 1)
                if self.negated:
                    out.add("not", base + 2)
            out.add(verb.english, base)
        elif verb.english == "be":
            out.add(english.finite(verb, self.tense, self.plural), base)
            if self.negated:
                out.add("not", base + 2)
        elif self.negated:
            out.add("did" if self.tense == "past" else "do" if self.plural else "does", base + 1)
            out.add("not", base + 2)
            out.add(verb.english, base)
        else:
            out.add(english.finite(verb, self.tense, self.plural), base)
        self._english_complements(out)

    def _english_complements(self, out: Writer) -> None:
        if self.recipient:
            self.recipient.english(out)
        if self.object and self.gap != "object":
            self.object.english(out)
        if self.predicate:
            out.add(self.predicate.english, self.base + 3)
        for goal in self.goals:
            goal.english(out)
        if self.place and self.front != "place":
            self.place.english(out)
        if self.time and self.front != "time":
            out.add(self.time.english, self.base + 4)
        if self.infinitive:
            self.infinitive.english(out)
        if self.that:
            self.that.english(out)

    def _collect(self, out: Writer) -> None:
        """Collect the link from the verb to its subject, and the pairs of lemmas."""
        if self.gap != "subject":
            out.links.append(("subject", self.base, self.subject.base))
        self.collect_pairs(out, self.subject)

    def collect_pairs(self, out: Writer, subject: Subject) -> None:
        """Collect the pairs of lemmas: subject and verb, object and verb."""
        if isinstance(subject, Demonstrative):
            subject = subject.antecedent
        if isinstance(subject, NounPhrase):
            out.pairs.append(("subject", subject.noun.pool, self.verb.pool))
        for phrase in (self.object, self.recipient):
            if phrase:
                out.pairs.append(("object", phrase.noun.pool, self.verb.pool))

    # German

    def german(self, out: Writer) -> None:
        """Write a main clause in German: the verb comes second (first where `inverted`)."""
        if isinstance(self.front, Adverb):
            out.add(self.front.german, self.base + 5)
        elif self.front == "time" and self.time:
            out.add(self.time.german, self.base + 4)
        elif self.front == "place" and self.place:
            self.place.german(out)
        elif not self.inverted:
            self.subject.german(out, "nominative")
        self._german_finite(out)
        if self.front or self.inverted:
            self.subject.german(out, "nominative")
        self._german_middle(out)
        if self.tense in MODALS:
            out.add(german.infinitive(self.verb), self.base)
        elif self.verb.particle:
            out.add(self.verb.particle, self.base)
        self._german_end(out)

    def german_final(self, out: Writer) -> None:
        """Write what follows a conjunction in German: the verb comes last."""
        if self.gap != "subject":
            self.subject.german(out, "nominative")
        self._german_middle(out)
        if self.tense in MODALS:
            out.add(german.infinitive(self.verb), self.base)
            self._german_finite(out)
        else:
            keys = (self.base, self.base + 1)
            out.add(self.verb.particle + german.finite(self.verb, self.tense, self.plural), *keys)
        self._german_end(out)

    def _german_finite(self, out: Writer) -> None:
        keys = (self.base + 1,) if self.tense in MODALS else (self.base, self.base + 1)
        out.add(german.finite(self.verb, self.tense, self.plural), *keys)

    def _german_middle(self, out: Writer) -> None:
        negation = self.base + 2 if self.negated else 0
        thing = self.object if self.gap != "object" else None
        dative = self.verb.frame == "dative"
        if self.time and self.front != "time":
            out.add(self.time.german, self.base + 4)
        if self.manner:
            out.add(self.manner.german, self.base + 7)
        if self.recipient:
            self.recipient.german(out, "dative")
        if thing and dative:
            negation = self._german_object(out, thing, "dative", negation)
        if negation and not thing and not self.recipient and self.gap != "object":
            out.add("nicht", negation)
            negation = 0
        if self.place and self.front != "place":
            self.place.german(out)
        if thing and not dative:
            negation = self._german_object(out, thing, "accusative", negation)
        if negation:
            out.add("nicht", negation)
        if self.predicate:
            out.add(self.predicate.german, self.base + 3)
        for goal in self.goals:
            goal.german(out)

    def _german_object(self, out: Writer, thing: NounPhrase, case: str, negation: int) -> int:
        """Write the object, with the negation in an indefinite article ("kein"). Returns the negation left to write."""
        absorbs = negation and thing.article == "a"
        thing.german(out, case, negated=negation if absorbs else 0)
        return 0 if absorbs else negation

    def _german_end(self, out: Writer) -> None:
        if self.infinitive:
            self.infinitive.german(out)
        if self.that:
            self.that.german(out)

    # Relative clauses

    def relative_english(self, out: Writer, head: NounPhrase) -> None:
        """Write the relative clause of `head` in English."""
        person = head.noun.kind == "person"
        pronoun = ("who" if self.gap == "subject" else "whom") if person else "that"
        out.add(pronoun, self.base + 6)
        out.links.append(("antecedent", self.base + 6, head.base))
        finite = self.base + (self.tense in MODALS)
        out.links.append(("conjunction", finite, self.base + 6))
        if self.gap == "subject":
            out.links.append(("subject", self.base, self.base + 6))
        else:
            self.subject.english(out)
        self._english_rest(out)

    def relative_german(self, out: Writer, head: NounPhrase) -> None:
        """Write the relative clause of `head` in German, between commas."""
        dative = self.gap == "object" and self.verb.frame == "dative"
        case = "nominative" if self.gap == "subject" else "dative" if dative else "accusative"
        out.add(",")
        out.add(german.relative(head.gender, head.plural, case), self.base + 6)
        self.german_final(out)
        out.add(",")


@dataclass(eq=False, frozen=True)
class Subordinate(Phrase):
    """A conjunction and its clause; the German verb comes last."""

    conjunction: Adverb
    clause: Clause

    def english(self, out: Writer) -> None:
        """Write the conjunction and the clause in English; a comma before a main clause is a `Joint`."""
        out.add(self.conjunction.english, self.base)
        finite = self.clause.base + (self.clause.tense in MODALS)
        out.links.append(("conjunction", finite, self.base))
        self.clause.english(out)

    def german(self, out: Writer) -> None:
        """Write the clause in German, between commas."""
        if out.words:
            out.add(",")
        out.add(self.conjunction.german, self.base)
        self.clause.german_final(out)
        out.add(",")


@dataclass(eq=False, frozen=True)
class Infinitive(Phrase):
    """ "to" with an infinitive. clause: the verb and what it takes, with the subject of the clause above."""

    clause: Clause

    def english(self, out: Writer) -> None:
        """Write the infinitive in English."""
        out.add("to", self.base)
        self.clause._english_manner(out)
        out.add(self.clause.verb.english, self.clause.base)
        self.clause.collect_pairs(out, self.clause.subject)
        self.clause._english_complements(out)

    def german(self, out: Writer) -> None:
        """Write the clause in German, between commas."""
        out.add(",")
        self.clause._german_middle(out)
        verb = self.clause.verb
        if verb.particle:
            out.add(german.infinitive(verb, zu=True), self.base, self.clause.base)
        else:
            out.add("zu", self.base)
            out.add(german.infinitive(verb), self.clause.base)
        out.add(",")


@dataclass(eq=False, frozen=True)
class Joint(Phrase):
    """A punctuation mark or a coordinating conjunction, between two clauses or at the end."""

    source: str
    target: str

    def english(self, out: Writer) -> None:
        """Write the English word or mark."""
        out.add(self.source, self.base)

    def german(self, out: Writer) -> None:
        """Write the German word or mark."""
        out.add(self.target, self.base)
