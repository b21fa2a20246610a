"""Languages of a text by their most frequent words, to find sides that are swapped.

The words are function words that every text of the language has; where two languages share one, it counts for neither.
"""

from collections.abc import Iterable

from headcount.doctor.texts import words

COMMON = {
    "en": "the of and to in is that it was for on are with as at by from this an be have not but they his her which",
    "de": "der die das und in zu den ist ein eine einen einem mit auf von im nicht sich für dem es auch an des sie er",
    "fr": "le la les de des et un une du en est que qui dans pour sur pas il elle au aux avec ce ne se son sa sont par",
    "es": "el la los las de y en que un una por con para del se no es al su lo como más pero está este sus le",
    "it": "il la lo gli le di e che un una in per con del della non si è al sono da nel come più ma dei alla ha",
    "pt": "o a os as de e que em um uma do da no na por com para não se é ao dos das como mais mas foi seu sua",
    "nl": "de het een en van in te dat is op voor met niet zijn aan die er ook als bij door naar om hij ze wordt",
    "cs": "a v se na je že to s z do o i ve pro jako za by ale si jsou po od který jeho který jak bylo při muž",
    "pl": "w i na się z do nie że to jest o jak za od po ale co przez dla jego tym oraz są był może które",
    "sv": "och i att det som en på är av för den med till inte om ett han men var jag sig från vi så kan",
    "da": "og i at det som en på er af for den med til ikke om et han men var jeg sig fra vi så kan",
    "ro": "și în de la a cu un o pe nu să că este din se care pentru mai ce fi sunt lui sau fost ale",
    "tr": "ve bir bu da de için ile çok ne o var mi gibi daha ama olan olarak kadar sonra değil en her ben",
    "fi": "ja on ei se että oli hän joka mutta ovat kun myös niin kuin jos ole sen hänen voi tai tämä ovat",
    "ru": "и в не на что я он с как это по но к из у за от его для она так же бы был то мы",
    "uk": "і в не на що я він з як це по але до за від його для вона так же був та ми у й",
}
SPECIAL = {"zh": "的是在不了一有人我", "ja": "のはをにがでとしてた", "ko": "이는을의에가다은고"}
COMMON_WORDS = {code: frozenset(text.split()) for code, text in COMMON.items()}
COMMON_WORDS |= {code: frozenset(text) for code, text in SPECIAL.items()}


def own_words(texts: Iterable[str], language: str, other: str) -> float | None:
    """Of the common words of two languages in a text, the share that `language` has; None where headcount has no list
    for one of them, or the text has hardly any of their words."""
    here, there = (COMMON_WORDS.get(code.lower().replace("_", "-").split("-")[0]) for code in (language, other))
    if here is None or there is None or here == there:
        return None
    own = others = 0
    for text in texts:
        for word in words(text):
            own += word in here and word not in there
            others += word in there and word not in here
    return own / (own + others) if own + others >= 20 else None
