"""The words: English and German lemmas with all that inflecting them needs, as tables.

A noun line is ``english  German  gender  German-plural [genitive]``; gender is m, f, n, or w for a masculine weak noun
(whose oblique cases take the form of the plural). Every English lemma has exactly one German translation, except the
nouns in `HOMOGRAPHS`, which another word of the sentence decides.
"""

import re
from dataclasses import dataclass

NOUNS = {
    # People. Occupations are generic masculines, so "he" refers to them. Those first have a plural like the singular.
    "person": """
        teacher Lehrer m Lehrer
        painter Maler m Maler
        worker Arbeiter m Arbeiter
        driver Fahrer m Fahrer
        baker Bäcker m Bäcker
        gardener Gärtner m Gärtner
        singer Sänger m Sänger
        dancer Tänzer m Tänzer
        tailor Schneider m Schneider
        butcher Metzger m Metzger
        fisherman Fischer m Fischer
        hunter Jäger m Jäger
        judge Richter m Richter
        pupil Schüler m Schüler
        rider Reiter m Reiter
        knight Ritter m Ritter
        merchant Händler m Händler
        athlete Sportler m Sportler
        artist Künstler m Künstler
        waiter Kellner m Kellner
        bricklayer Maurer m Maurer
        carpenter Tischler m Tischler
        guard Wächter m Wächter
        robber Räuber m Räuber
        coach Trainer m Trainer
        inventor Erfinder m Erfinder
        researcher Forscher m Forscher
        girl Mädchen n Mädchen
        man Mann m Männer
        boy Junge w Jungen
        doctor Arzt m Ärzte
        king König m Könige
        uncle Onkel m Onkel
        friend Freund m Freunde
        neighbour Nachbar w Nachbarn
        farmer Bauer w Bauern
        policeman Polizist w Polizisten
        soldier Soldat w Soldaten
        tourist Tourist w Touristen
        prince Prinz w Prinzen
        thief Dieb m Diebe
        pilot Pilot w Piloten
        writer Autor m Autoren
        cook Koch m Köche
        guest Gast m Gäste
        woman Frau f Frauen
        mother Mutter f Mütter
        sister Schwester f Schwestern
        daughter Tochter f Töchter
        aunt Tante f Tanten
        queen Königin f Königinnen
        princess Prinzessin f Prinzessinnen
        nurse Krankenschwester f Krankenschwestern
        witch Hexe f Hexen
        nun Nonne f Nonnen
        grandmother Großmutter f Großmütter
        actress Schauspielerin f Schauspielerinnen
        widow Witwe f Witwen
        bride Braut f Bräute
        child Kind n Kinder
        baby Baby n Babys
    """,
    "animal": """
        dog Hund m Hunde
        horse Pferd n Pferde
        cat Katze f Katzen
        bird Vogel m Vögel
        cow Kuh f Kühe
        lamb Lamm n Lämmer
        goat Ziege f Ziegen
        pig Schwein n Schweine
        bear Bär w Bären
        wolf Wolf m Wölfe
        fox Fuchs m Füchse
        duck Ente f Enten
        goose Gans f Gänse
        lion Löwe w Löwen
        tiger Tiger m Tiger
        elephant Elefant w Elefanten
        monkey Affe w Affen
        donkey Esel m Esel
        camel Kamel n Kamele
        rabbit Kaninchen n Kaninchen
        squirrel Eichhörnchen n Eichhörnchen
        bee Biene f Bienen
        mouse Maus f Mäuse
        frog Frosch m Frösche
        turtle Schildkröte f Schildkröten
    """,
    # Portable things; again a first group with a plural like the singular.
    "thing": """
        suitcase Koffer m Koffer
        spoon Löffel m Löffel
        knife Messer n Messer
        plate Teller m Teller
        bucket Eimer m Eimer
        mirror Spiegel m Spiegel
        mug Becher m Becher
        cushion Kissen n Kissen
        broom Besen m Besen
        note Zettel m Zettel
        computer Computer m Computer
        candlestick Leuchter m Leuchter
        whisk Schneebesen m Schneebesen
        sail Segel n Segel
        bundle Bündel n Bündel
        oar Ruder n Ruder
        badge Abzeichen n Abzeichen
        casket Kästchen n Kästchen
        screwdriver Schraubenzieher m Schraubenzieher
        calendar Kalender m Kalender
        parcel Päckchen n Päckchen
        medal Orden m Orden
        bag Tasche f Taschen
        box Kiste f Kisten
        bottle Flasche f Flaschen
        vase Vase f Vasen
        basket Korb m Körbe
        hammer Hammer m Hämmer
        axe Axt f Äxte
        rope Seil n Seile
        umbrella Regenschirm m Regenschirme
        candle Kerze f Kerzen
        fork Gabel f Gabeln
        picture Bild n Bilder
        carpet Teppich m Teppiche
        chair Stuhl m Stühle
        violin Geige f Geigen
        guitar Gitarre f Gitarren
        drum Trommel f Trommeln
        doll Puppe f Puppen
        coin Münze f Münzen
        gift Geschenk n Geschenke
        tool Werkzeug n Werkzeuge
        purse Geldbeutel m Geldbeutel
        sword Schwert n Schwerter
        pot Topf m Töpfe
        pan Pfanne f Pfannen
        flag Fahne f Fahnen
        rug Vorleger m Vorleger
    """,
    "text": """
        book Buch n Bücher
        newspaper Zeitung f Zeitungen
        poem Gedicht n Gedichte
        novel Roman m Romane
        diary Tagebuch n Tagebücher
        contract Vertrag m Verträge
        report Bericht m Berichte
        essay Aufsatz m Aufsätze
        list Liste f Listen
        recipe Rezept n Rezepte
    """,
    "food": """
        cake Kuchen m Kuchen
        apple Apfel m Äpfel
        bun Brötchen n Brötchen
        egg Ei n Eier
        sausage Wurst f Würste
        potato Kartoffel f Kartoffeln
        tomato Tomate f Tomaten
        soup Suppe f Suppen
        biscuit Keks m Kekse
        orange Orange f Orangen
        cheese Käse m Käse
        salad Salat m Salate
        carrot Karotte f Karotten
        mushroom Pilz m Pilze
        strawberry Erdbeere f Erdbeeren
        onion Zwiebel f Zwiebeln
    """,
    "clothes": """
        coat Mantel m Mäntel
        dress Kleid n Kleider
        shirt Hemd n Hemden
        jacket Jacke f Jacken
        skirt Rock m Röcke
        sweater Pullover m Pullover
        shoe Schuh m Schuhe
        boot Stiefel m Stiefel
        sock Socke f Socken
        glove Handschuh m Handschuhe
        uniform Uniform f Uniformen
        apron Schürze f Schürzen
    """,
    "device": """
        lamp Lampe f Lampen
        radio Radio n Radios
        machine Maschine f Maschinen
        heater Heizung f Heizungen
        television Fernseher m Fernseher
        oven Ofen m Öfen
        engine Motor m Motoren
        camera Kamera f Kameras
        printer Drucker m Drucker
        alarm Alarm m Alarme
    """,
    "opening": """
        door Tür f Türen
        window Fenster n Fenster
        cupboard Schrank m Schränke
        drawer Schublade f Schubladen
        shop Laden m Läden
        safe Tresor m Tresore
        cage Käfig m Käfige
        garage Garage f Garagen
    """,
    "vehicle": """
        car Auto n Autos
        lorry Lastwagen m Lastwagen
        ferry Fähre f Fähren
        boat Boot n Boote
        bicycle Fahrrad n Fahrräder
        tram Straßenbahn f Straßenbahnen
        bus Bus m Busse Busses
        carriage Kutsche f Kutschen
        sledge Schlitten m Schlitten
        aeroplane Flugzeug n Flugzeuge
    """,
    # Places, by the preposition that they take.
    "in": """
        garden Garten m Gärten
        house Haus n Häuser
        forest Wald m Wälder
        kitchen Küche f Küchen
        church Kirche f Kirchen
        hall Halle f Hallen
        cellar Keller m Keller
        room Zimmer n Zimmer
        tent Zelt n Zelte
        school Schule f Schulen
        town Stadt f Städte
        park Park m Parks Parks
        cave Höhle f Höhlen
        barn Scheune f Scheunen
        river Fluss m Flüsse
        lake See m Seen
        village Dorf n Dörfer
        valley Tal n Täler
        museum Museum n Museen
        theatre Theater n Theater
        hut Hütte f Hütten
        library Bibliothek f Bibliotheken
        office Büro n Büros
        hotel Hotel n Hotels
        tunnel Tunnel m Tunnel
        yard Hof m Höfe
    """,
    "on": """
        roof Dach n Dächer
        square Platz m Plätze
        meadow Wiese f Wiesen
        bridge Brücke f Brücken
        field Feld n Felder
        stage Bühne f Bühnen
        table Tisch m Tische
        mountain Berg m Berge
        hill Hügel m Hügel
        island Insel f Inseln
        balcony Balkon m Balkone
        tower Turm m Türme
        wall Mauer f Mauern
        street Straße f Straßen
        market Markt m Märkte
        terrace Terrasse f Terrassen
        jetty Steg m Stege
        sofa Sofa n Sofas
        bed Bett n Betten
    """,
    "at": """
        station Bahnhof m Bahnhöfe
        airport Flughafen m Flughäfen
        coast Küste f Küsten
        crossing Kreuzung f Kreuzungen
        border Grenze f Grenzen
        fence Zaun m Zäune
        counter Schalter m Schalter
        entrance Eingang m Eingänge
    """,
}

NAMES = {
    "f": "Anna Maria Julia Sophie Clara Laura Eva Emma Lena Nora",
    "m": "Peter Paul Martin Daniel David Leon Simon Anton Jakob Oliver",
}

# Two English nouns, each with one meaning, that German calls by one word: "english english German gender plural".
CUES = """
    lock castle Schloss n Schlösser
    rooster tap Hahn m Hähne
    leaf sheet Blatt n Blätter
    gate goal Tor n Tore
    pear bulb Birne f Birnen
    wing piano Flügel m Flügel
    ceiling blanket Decke f Decken
    snake queue Schlange f Schlangen
    ostrich bouquet Strauß m Sträuße
    bowl peel Schale f Schalen
    dish court Gericht n Gerichte
    melon bowler Melone f Melonen
    lentil lens Linse f Linsen
    slice pane Scheibe f Scheiben
    willow pasture Weide f Weiden
    horsefly brake Bremse f Bremsen
    camp warehouse Lager n Lager
    treetop crown Krone f Kronen
    trailer pendant Anhänger m Anhänger
    heel paragraph Absatz m Absätze
    ridge comb Kamm m Kämme
    pavement plaster Pflaster n Pflaster
    corridor gear Gang m Gänge
    train draught Zug m Züge
    menu map Karte f Karten
    chapel band Kapelle f Kapellen
    herring tent-peg Hering m Heringe
    soil floor Boden m Böden
    cylinder top-hat Zylinder m Zylinder
"""

# English nouns with two German translations: "english | German gender plural | German gender plural | cues". The first
# word of each pair of cues calls for the first translation, the second for the other; each pair is one German word.
HOMOGRAPHS = """
    bank | Ufer n Ufer | Bank f Banken | snake/queue castle/lock treetop/crown
    bat | Fledermaus f Fledermäuse | Schläger m Schläger | gate/goal treetop/crown wing/piano
    crane | Kranich m Kraniche | Kran m Kräne | wing/piano horsefly/brake herring/tent-peg
    pen | Stall m Ställe | Stift m Stifte | ostrich/bouquet leaf/sheet rooster/tap
    match | Streichholz n Streichhölzer | Spiel n Spiele | gate/goal chapel/band dish/court
    trunk | Stamm m Stämme | Rüssel m Rüssel | willow/pasture pear/bulb brake/horsefly
    letter | Brief m Briefe | Buchstabe w Buchstaben Buchstabens | bouquet/ostrich castle/lock heel/paragraph
    key | Schlüssel m Schlüssel | Taste f Tasten | wing/piano chapel/band corridor/gear
    chest | Truhe f Truhen | Brust f Brüste | crown/treetop train/draught trailer/pendant
    plant | Pflanze f Pflanzen | Fabrik f Fabriken | soil/floor leaf/sheet draught/train
    board | Brett n Bretter | Vorstand m Vorstände | dish/court melon/bowler heel/paragraph
    bill | Schnabel m Schnäbel | Rechnung f Rechnungen | ostrich/bouquet wing/piano rooster/tap
    file | Feile f Feilen | Akte f Akten | dish/court lock/castle heel/paragraph
    date | Dattel f Datteln | Datum n Daten | dish/court leaf/sheet menu/map
    fan | Ventilator m Ventilatoren | Fan m Fans Fans | ceiling/blanket bulb/pear draught/train
    seal | Robbe f Robben | Siegel n Siegel | herring/tent-peg leaf/sheet dish/court
    palm | Palme f Palmen | Handfläche f Handflächen | treetop/crown pavement/plaster trailer/pendant
    case | Etui n Etuis | Fall m Fälle | comb/ridge lens/lentil pendant/trailer
    vessel | Gefäß n Gefäße | Schiff n Schiffe | bouquet/ostrich lentil/lens tap/rooster
    temple | Tempel m Tempel | Schläfe f Schläfen | ridge/comb melon/bowler pavement/plaster
    jam | Marmelade f Marmeladen | Stau m Staus Staus | pear/bulb slice/pane pendant/trailer
    ruler | Herrscher m Herrscher | Lineal n Lineale | castle/lock crown/treetop menu/map
"""

# Verbs: "english[/past] [particle+]infinitive third-singular past", by what they take.
VERBS = {
    "intransitive": """
        sleep/slept schlafen schläft schlief
        sing/sang singen singt sang
        laugh lachen lacht lachte
        weep/wept weinen weint weinte
        wait warten wartet wartete
        work arbeiten arbeitet arbeitete
        whisper flüstern flüstert flüsterte
        snore schnarchen schnarcht schnarchte
        sneeze niesen niest nieste
        smile lächeln lächelt lächelte
        freeze/froze frieren friert fror
        stay bleiben bleibt blieb
        sit/sat sitzen sitzt saß
        kneel/knelt knien kniet kniete
        tremble zittern zittert zitterte
        sweat/sweated schwitzen schwitzt schwitzte
        cough husten hustet hustete
        yawn gähnen gähnt gähnte
        pray beten betet betete
        cheer jubeln jubelt jubelte
        fight/fought kämpfen kämpft kämpfte
        hesitate zögern zögert zögerte
        grin grinsen grinst grinste
        suffer leiden leidet litt
    """,
    "stative": """
        lie/lay liegen liegt lag
        stand/stood stehen steht stand
        shine/shone glänzen glänzt glänzte
        stink/stank stinken stinkt stank
        rattle klappern klappert klapperte
        disappear verschwinden verschwindet verschwand
    """,
    # German uses the same verb for "in" and "into".
    "motion": """
        jump springen springt sprang
        run/ran rennen rennt rannte
        walk gehen geht ging
        dance tanzen tanzt tanzte
        crawl kriechen kriecht kroch
        climb klettern klettert kletterte
        fly/flew fliegen fliegt flog
        stagger taumeln taumelt taumelte
        ride/rode reiten reitet ritt
        drive/drove fahren fährt fuhr
        stumble stolpern stolpert stolperte
        roll rollen rollt rollte
        limp hinken hinkt hinkte
        hop hüpfen hüpft hüpfte
        march marschieren marschiert marschierte
        sneak schleichen schleicht schlich
        hike wandern wandert wanderte
        hurry eilen eilt eilte
    """,
    "transitive": """
        see/saw sehen sieht sah
        find/found finden findet fand
        describe beschreiben beschreibt beschrieb
        mention erwähnen erwähnt erwähnte
        notice bemerken bemerkt bemerkte
        forget/forgot vergessen vergisst vergaß
        photograph fotografieren fotografiert fotografierte
        draw/drew zeichnen zeichnet zeichnete
        film filmen filmt filmte
        watch beobachten beobachtet beobachtete
        seek/sought suchen sucht suchte
        praise loben lobt lobte
        love lieben liebt liebte
        hate hassen hasst hasste
        need brauchen braucht brauchte
        choose/chose wählen wählt wählte
        recognise erkennen erkennt erkannte
        admire bewundern bewundert bewunderte
        ignore ignorieren ignoriert ignorierte
        miss vermissen vermisst vermisste
        touch berühren berührt berührte
        examine untersuchen untersucht untersuchte
        protect schützen schützt schützte
    """,
    "social": """
        greet grüßen grüßt grüßte
        visit besuchen besucht besuchte
        hear/heard hören hört hörte
        meet/met treffen trifft traf
        kiss küssen küsst küsste
        hug umarmen umarmt umarmte
        warn warnen warnt warnte
        save retten rettet rettete
        ask fragen fragt fragte
        comfort trösten tröstet tröstete
        invite ein+laden lädt lud
        wake/woke wecken weckt weckte
    """,
    # These govern the dative in German.
    "dative": """
        help helfen hilft half
        thank danken dankt dankte
        follow folgen folgt folgte
        trust vertrauen vertraut vertraute
        answer antworten antwortet antwortete
        congratulate gratulieren gratuliert gratulierte
        obey gehorchen gehorcht gehorchte
        serve dienen dient diente
    """,
    "handle": """
        buy/bought kaufen kauft kaufte
        sell/sold verkaufen verkauft verkaufte
        steal/stole stehlen stiehlt stahl
        break/broke zerbrechen zerbricht zerbrach
        repair reparieren repariert reparierte
        clean putzen putzt putzte
        wash waschen wäscht wusch
        carry tragen trägt trug
        throw/threw werfen wirft warf
        hide/hid verstecken versteckt versteckte
        lose/lost verlieren verliert verlor
        use benutzen benutzt benutzte
        push schieben schiebt schob
        pull ziehen zieht zog
        hold/held halten hält hielt
    """,
    "eat": """
        eat/ate essen isst aß
        season würzen würzt würzte
        taste probieren probiert probierte
        order bestellen bestellt bestellte
    """,
    "feed": """
        feed/fed füttern füttert fütterte
        chase jagen jagt jagte
        catch/caught fangen fängt fing
    """,
    "write": """
        write/wrote schreiben schreibt schrieb
        publish veröffentlichen veröffentlicht veröffentlichte
        translate übersetzen übersetzt übersetzte
    """,
    "give": """
        give/gave geben gibt gab
        show zeigen zeigt zeigte
        send/sent schicken schickt schickte
        lend/lent leihen leiht lieh
        bring/brought bringen bringt brachte
        hand reichen reicht reichte
    """,
    "that": """
        say/said sagen sagt sagte
        claim behaupten behauptet behauptete
        hope hoffen hofft hoffte
        think/thought denken denkt dachte
        believe glauben glaubt glaubte
        fear fürchten fürchtet fürchtete
    """,
    # With an infinitive.
    "to": """
        promise versprechen verspricht versprach
        try/tried versuchen versucht versuchte
        decide beschließen beschließt beschloss
        begin/began beginnen beginnt begann
        dare wagen wagt wagte
        plan planen plant plante
        threaten drohen droht drohte
        intend beabsichtigen beabsichtigt beabsichtigte
    """,
    "be": "be/was sein ist war",
}

# Pairs of separable verbs with one stem; the English verb decides the particle. "a|b" are the two English verbs.
SEPARABLE = {
    "opening": """
        open|close auf|zu machen macht machte
        unlock|lock up auf|ab schließen schließt schloss
    """,
    "device": """
        switch on|switch off ein|aus schalten schaltet schaltete
        install|dismantle ein|ab bauen baut baute
    """,
    "clothes": """
        slip on|slip off an|aus ziehen zieht zog
    """,
    "thing": """
        pack|unpack ein|aus packen packt packte
        wrap up|unwrap ein|aus wickeln wickelt wickelte
        hang up/hung up|take down/took down auf|ab hängen hängt hängte
        take along/took along|accept mit|an nehmen nimmt nahm
        bring along/brought along|bring back/brought back mit|zurück bringen bringt brachte
        give back/gave back|hand in zurück|ab geben gibt gab
        send off/sent off|send back/sent back ab|zurück schicken schickt schickte
        exhibit|present aus|vor stellen stellt stellte
        throw away/threw away|knock over weg|um werfen wirft warf
        drag in|drag away hinein|weg schleppen schleppt schleppte
        carry in|carry out hinein|hinaus tragen trägt trug
    """,
    "text": """
        copy|rewrite/rewrote ab|um schreiben schreibt schrieb
    """,
    "person": """
        phone|phone back an|zurück rufen ruft rief
        lead in/led in|lead out/led out hinein|hinaus führen führt führte
    """,
    "": """
        arrive|return an|zurück kommen kommt kam
        get in/got in|get out/got out ein|aus steigen steigt stieg
        go in/went in|go out/went out hinein|hinaus gehen geht ging
        give up/gave up|give in/gave in auf|nach geben gibt gab
        drive off/drove off|drive ahead/drove ahead weg|voraus fahren fährt fuhr
    """,
}

# "english German [German attributive stem]", by what they can say something about.
ADJECTIVES = {
    "any": """
        old alt
        big groß
        small klein
        beautiful schön
        ugly hässlich
        famous berühmt
        strange seltsam
        dirty schmutzig
        wet nass
        clean sauber
        heavy schwer
        cold kalt
        dangerous gefährlich
        harmless harmlos
        important wichtig
        useful nützlich
        unusual ungewöhnlich
    """,
    "living": """
        young jung
        tired müde müd
        hungry hungrig
        happy glücklich
        sad traurig
        brave mutig
        friendly freundlich
        clever klug
        lazy faul
        angry wütend
        proud stolz
        curious neugierig
        shy schüchtern
        nervous nervös
        ill krank
        healthy gesund
        blind blind
        fat dick
    """,
    "thing": """
        new neu
        red rot
        blue blau
        green grün
        white weiß
        black schwarz
        brown braun
        yellow gelb
        grey grau
        expensive teuer teur
        cheap billig
        valuable wertvoll
        modern modern
        round rund
        thin dünn
        dusty staubig
        broken kaputt
    """,
    "place": """
        dark dunkel dunkl
        high hoch hoh
        quiet ruhig
        wide breit
        narrow schmal
        empty leer
    """,
    "food": """
        fresh frisch
        sweet süß
        warm warm
        salty salzig
    """,
}

# "english=German", by the tenses that they go with.
TIMES = {
    "any": "today=heute often=oft sometimes=manchmal in the evening=abends at night=nachts "
    "in the morning=morgens at noon=mittags every day=jeden Tag on Mondays=montags again=wieder "
    "on Sundays=sonntags every year=jedes Jahr at last=endlich",
    "past": "yesterday=gestern last year=letztes Jahr recently=neulich back then=damals",
    "present": "now=jetzt nowadays=heutzutage",
    "future": "soon=bald tomorrow=morgen later=später next year=nächstes Jahr",
}
# Adverbs whose meaning hangs on what follows them in German: "not every day" is "nicht jeden Tag", not "jeden Tag
# nicht".
SCOPE = ("often", "sometimes", "every day", "every year", "again", "at last", "recently", "soon", "later")
# Adverbs that name one time, or mean a single event; they do not go with "since then" and "ever since".
ONCE = ("today", "yesterday", "last year", "recently", "back then", "now", "nowadays", "at last", "again")
# Those that English can put before "to" and yet mean the infinitive: "promised often to pray".
BEFORE_TO = (*SCOPE, "now")
# Adverbs that English puts right before the verb that they belong to: "quietly promised to pray", "to quietly pray".
MANNERS = (
    "secretly=heimlich quietly=leise openly=offen bravely=mutig politely=höflich eagerly=eifrig nervously=nervös "
    "proudly=stolz patiently=geduldig cautiously=vorsichtig immediately=sofort loudly=laut seriously=ernsthaft "
    "silently=schweigend"
)

# "english=German case". Those of place stand for where a clause happens, the others belong to the noun before them, so
# that it is always clear what a prepositional phrase says something about.
PREPOSITIONS = {
    "place": "in=in dative, on=auf dative, at=an dative",
    "goal": "into=in accusative, onto=auf accusative",
    "noun": "beside=neben dative, near=bei dative, behind=hinter dative, in front of=vor dative",
    "company": "with=mit dative, without=ohne accusative",
    "way": "through=durch accusative, around=um accusative, out of=aus dative, to=zu dative",
}

CONJUNCTIONS = {
    "because": "weil", "although": "obwohl", "as soon as": "sobald", "if": "wenn", "while": "während",
    "before": "bevor", "until": "bis", "that": "dass", "whether": "ob",
}  # fmt: skip

# German words that are a conjunction (verb last) and an adverb (verb second); English tells the two apart.
CONNECTORS = {
    "seitdem": ("ever since", "since then"),
    "damit": ("so that", "with it"),
    "da": ("given that", "there"),
    "solange": ("as long as", "meanwhile"),
}

# Modal verbs: English, German third person singular and plural.
MODALS = {
    "can": ("kann", "können"),
    "must": ("muss", "müssen"),
    "will": ("wird", "werden"),
    "may": ("darf", "dürfen"),
}


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun or a name. `pool` names it where pairs of lemmas are kept apart (see `corpus`); `german` is its lemma."""

    english: str
    german: str
    gender: str
    plural: str
    genitive: str
    weak: bool
    kind: str
    pool: str


@dataclass(frozen=True, slots=True)
class Homograph:
    """An English noun with two translations, and the pairs of words (one word in German) of which one or the other
    decides between them."""

    senses: tuple[Noun, Noun]
    cues: tuple[tuple[Noun, Noun], ...]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb; `past` is the English past, `present` and `preterite` the German third person singular."""

    english: str
    past: str
    particle: str
    infinitive: str
    present: str
    preterite: str
    frame: str
    objects: str
    pool: str


@dataclass(frozen=True, slots=True)
class Adjective:
    """`stem` takes the endings, `german` stands alone in a predicate."""

    english: str
    german: str
    stem: str


@dataclass(frozen=True, slots=True)
class Preposition:
    """`case` is the one that the German preposition governs here."""

    english: str
    german: str
    case: str


@dataclass(frozen=True, slots=True)
class Adverb:
    """An adverb of time, place or manner, or the connecting adverb of a clause."""

    english: str
    german: str


def _genitive(german: str, gender: str, plural: str) -> str:
    if gender == "f":
        return german
    if gender == "w":
        return plural
    short = len(re.findall(r"[aeiouyäöü]+", german.lower())) == 1 and german[-1] not in "aeiouäöü"
    return german + ("es" if short or re.search(r"(s|ß|x|z|sch|st)$", german) else "s")


def _noun(english: str, entry: str, kind: str, pool: str = "") -> Noun:
    german, gender, plural, *genitive = entry.split()
    given = genitive[0] if genitive else _genitive(german, gender, plural)
    return Noun(english, german, gender.replace("w", "m"), plural, given, gender == "w", kind, pool or german)


def _lines(table: str) -> list[str]:
    return [line.strip() for line in table.strip().splitlines()]


def _nouns() -> dict[str, tuple[Noun, ...]]:
    kinds = {
        kind: tuple(
            _noun(english, entry, kind) for english, _, entry in (line.partition(" ") for line in _lines(table))
        )
        for kind, table in NOUNS.items()
    }
    cues = [line.split(maxsplit=2) for line in _lines(CUES)]
    kinds["cue"] = tuple(_noun(english, line, "cue") for first, second, line in cues for english in (first, second))
    kinds["name"] = tuple(
        Noun(name, name, gender, name, name + "s", False, "name", name)
        for gender, names in NAMES.items()
        for name in names.split()
    )
    return kinds


def _homographs(cues: dict[str, Noun]) -> tuple[Homograph, ...]:
    found = []
    for line in _lines(HOMOGRAPHS):
        english, first, second, pairs = (part.strip() for part in line.split("|"))
        senses = (_noun(english, first, "homograph", english), _noun(english, second, "homograph", english))
        names = [pair.split("/") for pair in pairs.split()]
        found.append(Homograph(senses, tuple((cues[one], cues[other]) for one, other in names)))
    return tuple(found)


def _past(english: str) -> str:
    verb, *rest = english.split()
    if verb.endswith("e"):
        past = verb + "d"
    elif re.search(r"[^aeiou]y$", verb):
        past = verb[:-1] + "ied"
    elif verb in DOUBLING:
        past = verb + verb[-1] + "ed"
    else:
        past = verb + "ed"
    return " ".join([past, *rest])


# Verbs that double the last consonant before -ed.
DOUBLING = {"grin", "hop", "hug", "plan", "slip", "wrap", "unwrap", "drag"}
# Verbs after which "in" and "on" may mean "into" and "onto".
INWARD = {
    "jump", "climb", "hop", "crawl", "sneak", "hurry", "throw", "push", "pull", "carry", "bring", "send",
}  # fmt: skip

OBJECTS = {
    "transitive": "person animal thing text food clothes device opening vehicle cue",
    "social": "person",
    "dative": "person",
    "handle": "thing text clothes device",
    "eat": "food",
    "feed": "animal",
    "write": "text",
    "give": "thing text",
}


def _verb(english: str, german: str, frame: str, objects: str, pool: str = "") -> Verb:
    base, _, past = english.partition("/")
    infinitive, present, preterite = german.split()
    particle, _, infinitive = infinitive.rpartition("+")
    return Verb(
        base,
        past or _past(base),
        particle,
        infinitive,
        present,
        preterite,
        frame,
        objects,
        pool or particle + infinitive,
    )


def _verbs() -> dict[str, tuple[Verb, ...]]:
    return {
        frame: tuple(
            _verb(english, " ".join(german), frame, OBJECTS.get(frame, ""))
            for english, *german in (line.rsplit(maxsplit=3) for line in _lines(table))
        )
        for frame, table in VERBS.items()
    }


def _separable() -> tuple[tuple[Verb, Verb], ...]:
    pairs = []
    for kind, table in SEPARABLE.items():
        for line in _lines(table):
            english, particles, *german = line.rsplit(maxsplit=4)
            first, second = (
                _verb(word, f"{particle}+{' '.join(german)}", "separable", kind, particles + german[0])
                for word, particle in zip(english.split("|"), particles.split("|"), strict=True)
            )
            pairs.append((first, second))
    return tuple(pairs)


def _adjective(line: str) -> Adjective:
    english, german, *stem = line.split()
    return Adjective(english, german, stem[0] if stem else german)


def _adverbs(table: str) -> tuple[Adverb, ...]:
    return tuple(
        Adverb(english.strip(), german)
        for english, german in re.findall(r"([A-Za-z ]+)=(jed\w+ \w+|\w+ Jahr|\w+)", table)
    )


def _prepositions(table: str) -> tuple[Preposition, ...]:
    return tuple(Preposition(*re.split(r"=| (?=\w+$)", entry.strip())) for entry in table.split(","))


nouns = _nouns()
homographs = _homographs({noun.english: noun for noun in nouns["cue"]})
verbs = _verbs()
separable = _separable()
adjectives = {kind: tuple(_adjective(line) for line in _lines(table)) for kind, table in ADJECTIVES.items()}
times = {tense: _adverbs(table) for tense, table in TIMES.items()}
manners = _adverbs(MANNERS)
prepositions = {kind: _prepositions(table) for kind, table in PREPOSITIONS.items()}
