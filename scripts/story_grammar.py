"""A story grammar: endless short stories and story-telling chats, for training the bundled model pair.

Everything here is original text. A template is a string with [a|b|c] for a random choice (nesting allowed, an empty
choice is fine) and {slot} for a word that depends on who and what the story is about. `sample(rng)` returns one
training document as a list of (role, text) turns; the role "raw" stands for plain text without a chat frame.
"""

import random
import re
import zlib

# --- the cast: noun : how it moves : s(he) when fixed -----------------------------------------------------------
LAND = """fox:trotted hare:hopped rabbit:hopped hedgehog:trotted mouse:scurried bear:padded squirrel:scampered
badger:trotted deer:walked wolf:padded mole:shuffled otter:scampered beaver:waddled raccoon:padded cat:padded
kitten:padded dog:trotted puppy:scampered pony:trotted horse:trotted cow:walked pig:trotted lamb:skipped
goat:skipped donkey:trotted duck:waddled goose:waddled hen:trotted frog:hopped toad:hopped turtle:walked
tortoise:walked snail:crept ant:marched spider:crept cricket:hopped lion:padded tiger:padded elephant:walked
monkey:scampered giraffe:walked zebra:trotted panda:padded koala:climbed kangaroo:hopped penguin:waddled
camel:walked hamster:scurried lizard:scurried moose:walked weasel:scurried sheep:walked chick:hopped
llama:trotted hippo:walked rhino:walked crocodile:crept snake:slid dinosaur:walked"""
AIR = """owl:flew crow:flew robin:flew sparrow:flew swan:flew bee:flew butterfly:flew ladybug:flew parrot:flew
dragon:flew bat:flew eagle:flew firefly:flew pigeon:flew seagull:flew fairy:flew moth:flew"""
WATER = """whale:swam dolphin:swam fish:swam crab:crept octopus:swam seal:swam mermaid:swam:s shark:swam"""
FOLK = """girl:walked:s boy:walked:h baker:walked farmer:walked fisherman:walked:h shepherd:walked sailor:walked
gardener:walked tailor:walked painter:walked king:walked:h queen:walked:s prince:walked:h princess:walked:s
knight:rode pirate:marched wizard:walked:h witch:walked:s giant:walked teacher:walked doctor:walked miller:walked
grandmother:walked:s grandfather:walked:h inventor:walked robot:rolled elf:skipped gnome:walked troll:marched
unicorn:trotted ghost:drifted snowman:walked:h dwarf:marched astronaut:walked postman:walked:h clown:walked
scarecrow:walked singer:walked cook:walked clockmaker:walked"""


def _cast(text, group):
    out = {}
    for entry in text.split():
        part = entry.split(":")
        out[part[0]] = (part[1], part[2] if len(part) > 2 else "", group)
    return out


HEROES = {**_cast(LAND, "l"), **_cast(AIR, "a"), **_cast(WATER, "w"), **_cast(FOLK, "f")}

# --- things: noun | what it does, in the past | what it is good for ----------------------------------------------
THINGS = """lantern|glowed like a small sun|light the path
lamp|gave a soft golden light|brighten the dark
candle|burned with a steady little flame|chase the shadows away
torch|shone far into the night|show the way
bell|rang as clear as water|call everyone together
drum|boomed like friendly thunder|keep everybody in step
flute|sang like a bird in spring|play a gentle tune
fiddle|made every foot tap|play a merry dance
guitar|hummed a warm song|play a slow, kind song
trumpet|blew one long golden note|call for help
whistle|could be heard across the whole valley|call for help
kite|danced on the wind|show the way from high above
balloon|floated like a tiny moon|wave from far away
ball|bounced as high as a roof|start a new game
boat|rocked softly on the water|cross the water
raft|floated as lightly as a leaf|cross the water
wagon|rolled along without a squeak|carry the heavy load
sled|slid as fast as the wind|bring everyone home
bicycle|hummed along the road|ride for help
basket|smelled of fresh bread|share a warm meal
blanket|was as soft as a cloud|keep the cold away
scarf|was as warm as a hug|keep the cold away
hat|had a bright feather on one side|keep the rain off
coat|had seven shiny buttons|keep the wind out
umbrella|opened like a big flower|keep the rain off
shoe|had a silver buckle|dance all night
mitten|was as red as a berry|warm a cold hand
quilt|had a picture in every square|keep the cold away
pillow|smelled of summer hay|rest a tired head
key|shone like a drop of gold|open the old door
map|showed every hill and stream|find the way home
compass|always pointed the right way|find the way home
clock|ticked like a small, calm heart|tell the hour
mirror|caught the light of the sky|send a flash of light
telescope|made the far hills look near|look for the way home
book|was full of bright pictures|read a story aloud
letter|was folded very neatly|bring good news
pencil|drew lines as fine as hair|draw a map
paintbrush|left a trail of bright blue|paint a sign
spoon|shone like the moon|stir a pot of hot soup
pot|bubbled with good smells|cook a warm supper
teapot|whistled a cheerful tune|pour some hot tea
cup|had a tiny blue star on it|share a warm drink
cake|smelled of honey and butter|cheer everyone up
pie|steamed in the cool air|feed every hungry guest
apple|was as red as the evening sky|share a sweet bite
pumpkin|was as round as the moon|make a big pot of soup
carrot|was as long as an arm|make a good lunch
cookie|smelled of warm sugar|cheer everyone up
jar of honey|glowed in the sunlight|make everything sweeter
seed|was no bigger than a crumb|grow something new
flower|smelled of early spring|make the day brighter
feather|was as light as a breath|tickle away the tears
leaf|was as gold as a coin|make a small roof
shell|whispered like the sea|call across the water
pearl|shone with a milky light|light up a dark corner
stone|was as smooth as an egg|mark the way
coin|was bright on one side and dark on the other|pay for a warm supper
ring|sparkled at every turn|send a tiny flash of light
crown|glittered in the morning sun|make everyone feel important
necklace|tinkled like rain|make someone smile
button|shone like a little eye|mend the torn coat
rope|was strong and long|pull a friend out of trouble
ladder|had twelve strong steps|climb out of the hole
hammer|was small but strong|mend the broken fence
broom|swept without a sound|clear the path
bucket|never lost a drop|bring fresh water
net|was woven very tightly|catch what was falling
tent|stood firm in the wind|give everyone a dry bed
doll|had a kind painted smile|comfort a sad child
teddy bear|was soft and a little worn|comfort a sad friend
puppet|nodded its wooden head|make everyone laugh
toy train|went round and round with a soft hum|make everyone laugh
top|spun until it sang|make everyone laugh
snow globe|was full of slow white flakes|calm a worried heart
music box|played a tune from long ago|calm a worried heart
magic wand|left a trail of silver sparks|make a little magic
crystal|threw small rainbows on the wall|light up a dark corner
star map|showed a thousand tiny lights|find the way at night
treasure chest|creaked when it opened|make everyone gasp
paper plane|flew in a wide, slow curve|carry a message
wooden horse|rocked back and forth|make everyone laugh
magnifying glass|made small things look big|see what was hidden
suitcase|was full of pockets|pack for the trip
violin|sang like the evening wind|play a gentle tune
piano|filled the whole room with music|play a merry dance
camera|clicked like a happy cricket|keep the day for ever
watch|ticked very softly|tell the hour
egg|was pale blue with brown spots|bring a new friend into the world
sword|was bright but never used in anger|cut the thorns away
shield|was painted with a yellow sun|keep the wind off
broken clock|pointed to noon all day long|make everyone laugh"""
THINGS = {row.split("|")[0]: tuple(row.split("|")[1:]) for row in THINGS.split("\n")}

# Things too big or too far to carry: noun phrase with its article.
FAR = """the moon|the sun|the sea|a star|the stars|a rainbow|a castle|a mountain|a waterfall|a lighthouse|an island|
a tower|the snow|a cloud|the north wind|a volcano|a ship|a train|a bridge|a cave|a tall tree|an old house|
a garden|the big city|a windmill|a desert|a spaceship|the rain|the sky""".replace("\n", "").split("|")

PLACES = """in the quiet forest|in the green wood|in the old oak wood|by the silver river|by the winding river|
by the blue lake|by the still pond|on the windy hill|on the high hill|in the wide meadow|in the sunny valley|
in the misty valley|at the edge of the village|in a small village|in a busy town|on a little farm|near the old mill|
near the stone bridge|in the apple orchard|in the big garden|by the sea|on a small island|on a sandy beach|
at the foot of the mountain|high in the mountains|in the snowy north|in a warm green jungle|at the edge of the desert|
in a castle on a hill|near the old lighthouse|in a harbor town|in the pine woods|in a crooked little house|
under the roots of an old tree|in a hollow log|behind the bakery|beside a waterfall""".replace("\n", "").split("|")
WET = """by the sea|in the deep blue sea|by the blue lake|in the wide river|in a quiet bay|near the coral reef|
in the harbor|near a small island""".replace("\n", "").split("|")
SPOTS = """behind a row of bushes|beside a mossy stone|in the tall grass|next to a hollow log|near the old well|
at the foot of an oak tree|beside the garden gate|in a pile of dry leaves|behind the old barn|on the bank of the stream|
under a wooden bench|in the shade of a willow|behind a stack of hay|at the bend of the path|between two big rocks|
under the little bridge""".replace("\n", "").split("|")
HE = """Rusty Pip Oliver Felix Bruno Milo Hugo Jasper Toby Barnaby Otto Finn Leo Max Theo Sam Oscar Arlo Basil Rufus
Ned Walter Gus Henry Monty Jonas Edgar Ivo Caleb Ravi Tomas Kofi Emil Albert Simon Noah Ben Arthur Timo Winston
Dash Bramble Copper Flint Thistle""".split()
SHE = """Willow Hazel Luna Clara Poppy Daisy Ruby Nora Mabel Ivy Stella Lily Rosie Tilly Ada Bella Maya Olive Juniper
Penny Greta Fern Marigold Edith Sofia Nina Amara Leila Yuki Anya Cora Elsa Ella Lucy Wanda Matilda Flora Pearl Mina
Saffron Dot Maple Iris Misty Violet""".split()
HADJ = """little|small|young|brave|shy|curious|clever|kind|cheerful|lonely|sleepy|gentle|quiet|hungry|old|tiny|
friendly|careful|proud|merry|clumsy|patient|dreamy|busy""".replace("\n", "").split("|")
FADJ = """wise old|friendly|cheerful|kind|old|young|gentle|grumpy|quiet|clever|tiny|merry""".replace("\n", "").split("|")
OADJ = """small|old|little|bright|shiny|golden|silver|red|blue|green|beautiful|wonderful|dusty|tiny|strange|
yellow|simple|magic|plain|fine""".replace("\n", "").split("|")
FEARS = """the dark|deep water|high places|thunder|loud noises|being alone|the long night|strangers""".replace(
    "\n", "").split("|")

# --- shared beats ---------------------------------------------------------------------------------------------
TIME = "[One [bright |cold |warm |misty |quiet |windy |rainy |sunny |golden |]{day}|On a [bright|cold|warm|misty|quiet|windy|gray|fine] {day}]"
INTRO = """[[Once upon a time|Long ago|Once|A long time ago], there was {aH}{named} who lived {inP}.|
[Once upon a time|Long ago|Once|Not so long ago], {inP}, there lived {aH}{named}.|
{aH}{named} lived {inP}.|There once was {aH}{named} who lived {inP}.|{cinP} lived {aH}{named}.]"""
HABIT = """[|||{he} [loved|liked] [to sing in the morning|to watch the clouds|long walks|to listen to old stories|to help others|
a good joke|to look at the stars|to try new things|warm evenings|to collect smooth stones|to ask questions].|
Every [morning|day|evening], {he} [sat in the doorway and hummed|said good day to the wind|looked out over the land|
dreamed of a great adventure|made a cup of tea and smiled at the sky].|Everyone {inP} knew {him} well.|
{he} had a big heart and [very little money|a loud laugh|many small dreams|a warm smile].]"""
WEATHER = """[The sun was [shining|warm|low and golden].|The wind [sang in the trees|was soft|blew softly].|The air smelled of [rain|grass|snow|flowers|
pine|warm bread].|[Clouds|Gray clouds|White clouds] [drifted by|rolled over the hills].|A [thin|soft|white] mist lay over the ground.|The birds were singing.|
Dew [sparkled on the grass|shone everywhere].|]"""
MEET = """[[On the way|Along the way|Soon|After a while|Before long|At the next bend], {h_} met {aF}{fnamed}.|
[Just then|At that moment|Then], {aF}{fnamed} came by.|
[Just then|At that moment], {aF}{fnamed} [looked up|came closer|stopped to listen].]"""
HOME = """[[That evening|That night|When the sun went down|At the end of the day], {H} [went home|fell asleep] [happy and tired|with a [warm|full|light] heart|with a smile].|
[That night|That evening], [the stars came out one by one|the moon rose round and bright], and {H} [smiled|slept well|was not lonely any more|felt at home].|
[From that day on|From then on|After that], {H} and {F} [were the best of friends|met every day|were never far apart|did everything together].|
[And|Even now], when the wind [is soft|blows from the west], [everyone {inP} still tells|they still tell] the story of {H} and {o}.|
They [laughed and talked|sat together] until the [moon|stars] came [up|out], and [it was the best day of all|nobody wanted to go home].]"""
SAID = "[said|asked|whispered]"
TEARS = "[sat down and sighed|felt a lump in {his} throat|wanted to cry|felt very small|did not know what to do]"
GLAD = "[smiled|laughed for joy|jumped for joy|felt warm inside|was very happy|could not stop smiling|beamed]"
HELLO = """["What is the matter?" asked {F}.|"Why do you look so sad?" {F} asked.|"Can I help you?" asked {F}.|"You look worried," said {F}.]"""
THANK = """["Thank you," said {H}. ["I could not have done it alone."|"You are a true friend."|"I will never forget this."|"You are very kind."]|
"How can I thank you?" asked {H}. ["You already have," said {F}.|"Just be my friend," said {F}.|"Come and see me again," said {F}.]|
{H} thanked {F} [again and again|with all {his} heart|with a big hug].]"""

# --- plots: name -> (themes, morals, paragraphs) ------------------------------------------------------------------
PLOTS = {
    "lost": ("loss hope", "a friend is the best help|it pays to keep looking|two pairs of eyes see more than one", [
        INTRO + " " + HABIT + """ [More than anything, {he} loved {his} {oadj}{O}.|{his2} dearest treasure was {ao}.|
{he} had {ao} and took good care of it.] It {trait}.""",
        TIME + """, {o} was gone! {H} [looked|searched] [under the bed|in every corner|behind the door], [on the roof|in the garden|by the well],
and [even in the soup pot|along the path|down by the water], but [it was nowhere|{he} could not find it]. {H} """ + TEARS + ".",
        MEET + " " + HELLO + """ "I have lost my {O}," said {H}. [{F} thought for a moment.|{F} nodded slowly.]
["Where did you see it last?"|"Let us look together," {fhe} said.|"Then we will find it," {fhe} said.] [So they went back, step by step.|Together they [followed the path|looked everywhere].]""",
        """[At last|Finally|Just before sunset], [there it was|they found {o}] {spot}[!|.] [{H} """ + GLAD + """.|{H} held it close and """ + GLAD + ".] " + THANK,
        HOME]),
    "found": ("honesty kindness", "giving something back feels better than keeping it|honest hearts make good friends", [
        INTRO + " " + HABIT,
        TIME + """, {H} {went} [down the path|along the stream|over the hill] and saw something {spot}. " """.strip(' "') + """ It was {ao}! It {trait}. ["How lovely," thought {H}.|"What a find!" thought {H}.|{H} had never seen one like it.]""",
        """[{he} wanted to keep it, but it was not {hers}.|"Somebody must miss it," {he} thought.|"But who lost it?" {he} wondered.] So {H} {went} from [door to door|house to house] and asked everyone.
[Nobody knew.|Everyone shook their heads.]""",
        """[At last|Then] {he} met {aF}{fnamed}, who [looked very sad|was searching the ground|was looking everywhere]. "I have lost my {O}," said {F}. ["Is this it?" asked {H}.|"Then this must be yours," said {H}.]
{F} [gasped|clapped|laughed with relief]. "You found it! [Thank you so much|You are very honest|How can I ever thank you]!\"""",
        """[{F} invited {H} to supper|They shared some bread and honey|{F} let {H} use {o} too], and {H} knew that {moral}. """ + HOME]),
    "gift": ("birthday giving", "the best gifts come from the heart|a gift is not what you give but how you give it", [
        INTRO + " " + HABIT,
        """{his2} best friend was {aF}{fnamed}. [Tomorrow was|The next day was|Soon it would be] {FS} birthday, and {H} wanted to give {fhim} something special.
[{he} thought and thought.|{he} thought about it all day.] ["I know!" {he} said.|Then {he} had an idea.] "I will give {fhim} {ao}.\"""",
        TIME + """, {H} {went} [to the market|into town|over the hill] to get {o}. It {trait}. But on the way home [it began to rain, and {he} got very wet|the wind blew hard, and {he} nearly lost it|{he} fell into the mud].
"[Oh no|Oh dear]," {said} {H}. "Now it is [wet|dirty|not new any more].\"""",
        """[Still|All the same], {H} {went} to {FS} house and held out {o}. "I am sorry," {he} {said}. "It is not as fine as it was." {F} looked at it for a long time. [Then {fhe} smiled.|{FS2} eyes shone.]
"[It is perfect|I love it|It is the best gift of all]," {fhe} {said}, "because [it comes from you|you thought of me|you carried it all this way].\"""",
        "[They [ate cake|sang songs|danced] until late.|They used {o} to {use}.] {H} had learned that {moral}. " + HOME]),
    "storm": ("courage weather helping", "even small help can be great in a storm|nobody is too small to help|kindness is stronger than any storm", [
        INTRO + " " + HABIT + " {he} had {ao}, and it {trait}.",
        TIME + """, [dark clouds came over the hills|the sky turned black|a storm came up]. The wind [howled|roared], and the rain [beat down|fell in sheets]. [{H} shut the door and was glad to be at home.|{H} hurried home and lit the fire.]""",
        """Then {he} heard a [faint|small|thin] voice outside. "Help!" it [called|cried]. [It was {aF}{fnamed}, lost in the storm.|{aF}{fnamed} was out there, cold and wet.] {H} was afraid, but {he} [took a deep breath|did not think twice].
{he} took {o} and {went} out into the storm.""",
        """[Step by step|Slowly], {H} [fought against the wind|followed the voice]. {he} used {o} to {use}, and [at last|soon] {he} found {F} {spot}. ["Do not be afraid," {said} {H}. "I am here."|"I have got you," {said} {H}.] [Side by side|Together], they made their way home.""",
        """They sat by the fire [and drank hot tea|until they were warm and dry|and listened to the rain]. "You were so brave," {said} {F}. [{H} smiled.|{H} turned red.] {he} had learned that {moral}. """ + HOME]),
    "fear": ("courage fear brave", "being brave means going on even when you are afraid|fear gets smaller when a friend is near|a small step is still a step", [
        INTRO + """ {H} [was kind and clever|was good at many things], but {he} was afraid of {fear}. [Everyone knew it.|{he} never told anyone.|{he} was a little ashamed of it.]""",
        TIME + """, {aF}{fnamed} [came to visit|knocked at the door|came running]. "[Please help me|I need your help]," {said} {F}. "I left my {O} {spot}, and I cannot get it alone."
[{H} began to shake.|{HS} knees shook.|{H} swallowed hard.] To get there, {he} would have to face {fear}.""",
        """["I am afraid," {said} {H}.|"But I am scared," {H} whispered.] ["So am I, sometimes," {said} {F}.|"I will stay next to you," {said} {F}.] ["We can go slowly," {fhe} said.|"Take my hand," {fhe} said.|"One step, and then another."]
So they set out together. [{H} counted {his} steps.|{H} sang a little song.|{H} took one deep breath after another.] It was not as bad as {he} had thought.""",
        """[At last|Before long] they came to the place, and there was {o}. It {trait}. "[You did it|We did it]!" {said} {F}. {H} """ + GLAD + ". [{he} was still a little afraid, but {he} was proud too.|The fear had become very small.]",
        "{H} had learned that {moral}. " + HOME]),
    "contest": ("contest winning race", "winning is nice, but friendship is nicer|the kindest heart wins the best prize|it is better to help than to win", [
        INTRO + " " + HABIT,
        TIME + """, there was a [great|big] race {inP}. The prize was {ao}. It {trait}, and everyone wanted it. [{H} wanted it most of all.|{H} had practiced for weeks.|{H} was small, but {he} was quick.]""",
        """"Ready, set, go!" [they called|someone cried]. {H} {went} as fast as {he} could. [Soon {he} was in front.|{he} passed one after another.] Then {he} saw {aF}{fnamed} {spot}. [{F} had hurt {fhis} foot.|{F} had fallen and could not get up.]
["Go on, or you will lose," {said} {F}.|"Do not stop for me," {said} {F}.]""",
        """But {H} stopped. "[A friend matters more than a prize|I will not leave you here|Some things matter more than winning]," {he} {said}. [{he} helped {F} up, and together they went on, step by step.|{F} leaned on {him}, and they went on together.]
They came in last of all, but everyone [cheered|clapped and cheered].""",
        """[The winner came up to them with {o}.|The judge stood up and smiled.] "This belongs to you," [{he1}|came the voice]. "You have the kindest heart." [{H} could hardly believe it.|{H} """ + GLAD + ".] {he} shared {o} with {F}, and {he} knew that {moral}. " + HOME]),
    "promise": ("promise trust", "a promise is a promise|trust grows when you keep your word|keeping your word is worth the trouble", [
        INTRO + " " + HABIT + " {HS} neighbor was {aF}{fnamed}, who owned {ao}.",
        TIME + """, {H} asked, "May I borrow your {O}?" {F} [thought for a while|looked at {him}]. ["Yes," {fhe} said, "but bring it back before dark."|"You may," {fhe} said. "But promise to bring it back by sunset."] ["I promise," {said} {H}.|{H} promised.]""",
        """What a day it was! {H} took {o} [to the hill|down to the water|into the meadow], and it {trait}. {he} used it to {use}. [The hours flew by.|{he} forgot the time.] Suddenly {he} saw that the sun was [low|going down]. [Others called, "Stay and play a little longer!"|{he} was tired, and the way was long.]""",
        """[{H} wanted to stay, but {he} remembered {his} promise.|"No," {said} {H}. "I gave my word."] {he} {went} as fast as {he} could, [over the hill|through the grass] and [across the stream|past the old well]. [Just as|Just when] the sun touched the hills, {he} knocked at {FS} door. "Here is your {O}," {he} {said}[, out of breath|].""",
        """{F} smiled. ["I knew you would come," {fhe} said. "You may borrow it again tomorrow."|"Now I know that I can trust you," {fhe} said.] {H} """ + GLAD + ". {he} had learned that {moral}. " + HOME]),
    "journey": ("journey adventure helping", "a long way is short with a good heart|small steps lead far|every long road begins at your own door", [
        INTRO + " " + HABIT,
        TIME + """, a message came. {aF}{fnamed}, who lived {in2}, was [sick in bed|ill|all alone] and needed {ao}. ["I will bring it," {said} {H}.|{H} had one, and {he} did not wait.] It {trait}. {H} packed some bread and set out. """ + WEATHER,
        """The way was long. [First {he} crossed a cold stream.|First {he} {went} through a dark wood.] [Then {he} climbed a steep hill.|Then {he} crossed a wide field.] [Once {he} lost {his} way, but a kind bird showed {him} the path.|When {he} was tired, {he} sat down, ate some bread, and went on.|
A cold wind blew, but {he} kept {o} safe.]""",
        """[At last|On the second day|When the moon rose], {he} came to {FS} door. "[Who is there|Is somebody there]?" asked {F} in a weak voice. "It is me," {said} {H}, "and I have brought you {o}." [{F} sat up at once.|{FS2} eyes grew bright.] They used it to {use}, and [soon {F} felt much better|{F} laughed for the first time in days].""",
        """["You came all this way for me," {said} {F}.|"You are the best friend in the world," {said} {F}.] {H} stayed [until spring|for a week|until {F} was well]. {he} knew now that {moral}. """ + HOME]),
    "festival": ("festival music talent shy", "everyone has something to give|what seems small to you may be great to others", [
        INTRO + " {H} was [a little shy|often very quiet|not sure of {himself}].",
        TIME + """, everyone was getting ready for the [spring|summer|harvest|winter|moon] festival. [Each of them would bring something special.|Everyone had something to show.] "I have only {ao}," {said} {H} sadly. "[Nobody will care|It is nothing special|They will laugh at me].\"""",
        MEET + """ ["Show me," {said} {F}.|"May I see it?" asked {F}.] {H} held it out, and it {trait}. "[How wonderful|It is beautiful]!" {said} {F}. "You must bring it tonight. [I will stand beside you|I will be there too].\"""",
        """[That night|When the lights were lit], {H} stood in front of them all. {his2} heart beat fast. Then {he} used {o} to {use}. [For a moment it was very quiet.|Nobody made a sound.] Then everyone [cheered|clapped|began to dance]. ["More!" they called.|"Again!" they cried.]""",
        """{H} """ + GLAD + ". [{he} looked at {F}, and {F} nodded.|\"You see?\" {said} {F}.] {H} had learned that {moral}. " + HOME]),
    "share": ("sharing friendship", "joy grows when you share it|a thing is twice as good when you share it|sharing turns one joy into two", [
        INTRO + " {he} had {ao}, and it {trait}. [\"It is mine, and only mine,\" {he} liked to say.|{he} never let anyone touch it.|{he} kept it all to {himself}.]",
        TIME + """, {aF}{fnamed} came by. ["May I try your {O}?" asked {F}.|"What a lovely {O}!" {said} {F}. "May I hold it?"] ["No," {said} {H}. "It is mine."|{H} shook {his} head and turned away.] {F} [went away sadly|said nothing and went home].""",
        """{H} [sat alone with {o}|played alone all afternoon]. [But it was not much fun.|But something was missing.] It was very quiet. ["What good is it if I am alone?" {he} thought.|{he} thought of {FS} sad face.] [The longer {he} sat there, the worse {he} felt.|]""",
        """[At last|In the end] {H} got up, took {o}, and {went} to look for {F}. {he} found {fhim} {spot}. "[I am sorry|I was wrong]," {said} {H}. "[Shall we share it|Would you like to use it with me]?" {FS2} face lit up. [They took turns.|They used it together to {use}.] They laughed all [afternoon|evening].""",
        "{H} had learned that {moral}. " + HOME]),
    "mend": ("patience building repair", "almost anything can be mended with patience|good things take time|what is broken can be made whole again", [
        INTRO + " " + HABIT + " {he} had {ao}, which had once belonged to {his} [grandmother|grandfather|mother].",
        TIME + """, {o} [fell|slipped and fell] to the ground and broke. [{H} stared at the pieces.|"Oh no!" cried {H}.] [It had always been so fine: it {trait}.|Nothing could be done, {he} thought.] {H} """ + TEARS + ".",
        MEET + """ "I can show you how to mend it," {said} {F}, "but it takes time." {H} [dried {his} eyes|nodded]. [On the first day they gathered the pieces.|First they laid out every piece.] [On the second day they made a pot of glue.|Then they worked, bit by bit.]
[Once {H} wanted to give up.|Twice it fell apart again.] "Slowly," {said} {F}. "[We have time|There is no hurry].\"""",
        """[On the third day|At last], {o} was whole again. You could see a thin line where it had been broken, [but {H} liked it even more|and that made it special]. Once more it {trait}. {H} """ + GLAD + ". " + THANK,
        "{H} had learned that {moral}. " + HOME]),
    "mystery": ("mystery night light", "strange things are often friends we have not met yet|it is good to look before you are afraid", [
        INTRO + " " + HABIT,
        """[Every night|For three nights], there was a strange [light|sound|shadow] {spot}. [Some said it was a ghost.|Nobody dared to go near.|Everyone stayed indoors.] But {H} was [curious|too curious to sleep]. {he} had {ao}, and it {trait}. ["Tonight I will find out," {he} {said}.|"I will take a look," {he} {said}.]""",
        """[When the moon rose|At midnight|After supper], {H} took {o} and crept outside. [Leaves rustled.|Something moved.|A twig snapped.] {HS} heart beat fast. Closer and closer {he} came. [Then a voice said, "Who is there?"|"Who is there?" {H} whispered.]""",
        """It was {aF}{fnamed}! ["Please do not be afraid," {said} {F}.|"I did not mean to scare you," {said} {F}.] "I [am new here|have no home|cannot sleep at night], and I [did not know anyone|was too shy to knock|am a little lonely]." {H} [laughed|began to laugh]. "So you are the great mystery!" {he} {said}. They used {o} to {use}, and [talked until morning|told each other stories].""",
        "[Nobody was afraid after that.|In the morning, {H} told everyone the truth.] {moral2}. " + HOME]),
    "wish": ("magic wish", "the best wishes are for others|a kind wish comes back to you|friends are better than gold", [
        INTRO + " " + HABIT,
        TIME + """, {H} found {ao} {spot}. It {trait}. [When {he} touched it, a soft voice spoke.|As {he} picked it up, it began to speak.] "I am a magic {O}," it said. "You may make one wish. [Choose well|Think before you speak].\"""",
        """One wish! {H} thought hard. [{he} could wish for gold, or for a house as big as a hill.|{he} could wish for cake every day, or for a crown.] """ + "[Just then|At that moment], {aF}{fnamed} came [by|along the path], [cold and hungry|tired and sad|wet and shivering]. " + """["I have nowhere to go," {said} {F}.|"I have lost my home," {said} {F}.]""",
        """[{H} did not have to think any longer.|Then {H} knew what to do.] "I wish," {he} {said}, "that {F} may have a warm home [and enough to eat|and never be lonely again]." {cO} [began to glow|shook a little], and [there stood a small house with smoke coming from the chimney|a little house grew out of the ground, with a red door].
"Is it really for me?" asked {F}[, and {fhe} cried for joy|].""",
        """["You kept nothing for yourself," said {o}. "So you shall have a friend."|"But what about your own wish?" asked {F}. "I have it," {said} {H}. "I have a friend."] {H} had learned that {moral}. """ + HOME]),
    "friend": ("friendship lonely", "you can make a friend by saying hello|a friend may be waiting just around the corner|one kind word is enough to begin a friendship", [
        INTRO + " {H} [had no one to play with|was often alone|wished for a friend]. {he} had only {ao}, and it {trait}.",
        TIME + """, {aF}{fnamed} moved in [next door|across the way|nearby]. {H} [watched from the window|hid behind a tree]. ["What if {fhe} does not like me?" {he} thought.|{he} wanted to say hello, but {he} did not dare.] """ + WEATHER,
        """[The next day|All morning], {H} played with {o} [outside|by {himself}] and pretended not to look. [Then {he} heard a voice.|Then someone coughed softly.] "[That is a fine {O}|What do you have there]," {said} {F}. {H} [took a deep breath|felt {his} heart jump]. "It is my {O}," {he} {said}. "Would you like to [see it|try it]?\"""",
        """{F} [nodded|came closer]. They used it to {use}. [When one of them laughed, the other laughed too.|They told each other all their secrets.] "[I was afraid nobody would talk to me|I was lonely too]," {said} {F}. "[So was I|Me too]," {said} {H}[, and they both laughed|].""",
        "{H} had learned that {moral}. " + HOME]),
    "honest": ("honesty truth mistake", "the truth is easier to carry than a lie|a true friend forgives an honest mistake|it is brave to say you are sorry", [
        INTRO + " {his2} best friend, {aF}{fnamed}, had {ao}. It {trait}.",
        TIME + """, while {F} was away, {H} [played with|picked up] {o}. [It slipped|{he} slipped], and [crack|crash]! It broke in two. {H} [turned pale|stood very still]. ["What will {F} say?" {he} thought.|Nobody had seen it.] {he} hid the pieces {spot}.""",
        """[That evening|Soon], {F} came home. "[Where is my {O}|Have you seen my {O}]?" {fhe} asked. ["No," {said} {H}, but {his} voice shook.|{H} looked at the ground and said nothing.] [That night {he} could not sleep.|{HS} stomach hurt.] [The secret felt as heavy as a stone.|The lie grew bigger and bigger.]""",
        """[In the morning|At last], {H} {went} to {F}. "I broke your {O}," {he} {said}, "and I hid it. I am so sorry." {F} was quiet for a while. Then {fhe} [put an arm around {him}|smiled a little]. "I am sad about it," {fhe} {said}, "but I am glad that you told me. [We can mend it together|A friend is worth more than that].\"""",
        "[They fixed it that very day|Piece by piece, they put it together again], and it was almost as good as new. {H} felt light again. {he} had learned that {moral}. " + HOME]),
    "sleep": ("bedtime night dream sleep", "the night is kind to those who are kind|a quiet heart sleeps well", [
        INTRO + " " + HABIT,
        "[One night|One quiet night|One long night], {H} could not sleep. [{he} turned left and {he} turned right.|{he} counted to a hundred, and then to a hundred again.] [The moon shone through the window.|The wind whispered at the window.|Outside it was very still.] [At last|In the end] {he} got up and {went} outside.",
        """There sat {aF}{fnamed}, looking at the stars. ["Can you not sleep either?" asked {F}.|"Sit with me," {said} {F}.] {H} sat down. ["My head is too full," {he} {said}.|"I keep thinking about tomorrow," {he} {said}.] {F} nodded and brought out {ao}. It {trait}. "[When I cannot sleep, I look at this|This always helps me]," {fhe} {said}. "[You may have it for tonight|Take it with you].\"""",
        """{F} told {him} a story about [a cloud that was looking for a bed|a star that fell into a pond|a river that walked to the sea|a tree that learned to sing]. [The words were slow and soft.|{fhe} spoke very softly.] {HS} eyes grew heavy. {he} [carried {o} home|said good night] and lay down.""",
        "{cO} stood beside the bed, and [everything was calm|the dark was not so dark]. {moral2}. [{H} slept until the sun came up.|Soon {H} was fast asleep. Good night, {N}.]"]),
    "map": ("treasure adventure", "the best treasure is a friend to share it with|the way there can be the best part", [
        INTRO + " " + HABIT,
        TIME + """, {H} found an old [map|piece of paper] {spot}. There was a big red cross on it. "Treasure!" {he} {said}. {he} ran to {his} friend, {aF}{fnamed}. ["Let us find it together," {said} {H}.|"Will you come with me?" asked {H}.] ["I would not miss it," {said} {F}.|"Of course," {said} {F}.]""",
        """They {went} [over the bridge|past the old mill], [up the hill|through the tall reeds], and [around a big rock|under a fallen tree]. [Once they went the wrong way and had to laugh.|It was hot, and they shared a bottle of water.|When it rained, they waited under a tree and told jokes.] [At last|Finally], they came to the spot. They dug and dug.""",
        """[Then something went clunk.|Then they hit something hard.] It was a [box|chest], and inside was {ao}. It {trait}. ["Is that all?" asked {F}. "No gold?"|For a moment, neither of them said a word.] {H} [thought about it|smiled]. "[It is better than gold|Gold would only be heavy]," {he} {said}. "We can use it to {use}.\"""",
        "So they carried {o} home and kept it [at {FS} house one week and at {HS} house the next|where both of them could see it]. {H} had learned that {moral}. " + HOME]),
    "trade": ("sharing trade", "two good things are better together|what you need may be what a friend can give", [
        INTRO + " {he} had {ao}. It {trait}. " + HABIT,
        "Next door lived {aF}{fnamed}, who had {ao2}. It {trait2}. [Each of them liked what the other had.|{H} looked at {o2}, and {F} looked at {o}.] " + TIME + ", {H} said, \"[Shall we trade for a day?|Let us trade for a day.]\" \"[Yes, let us|What a good idea]!\" {said} {F}.",
        "So {H} took {o2}, and {F} took {o}. [At first it was fun.|All morning they were happy.] {H} used {o2} to {use2}, and {F} used {o} to {use}. [But soon each of them missed the old thing.|But then clouds came up, and things went wrong.] \"[I miss my {O}|Something is missing],\" {said} {H}.",
        "[They met {spot}.|They looked at each other.] \"[What if we use them together|Why do we not put them side by side],\" {said} {F}. So they tried it. With {o} and {o2} together, everything was [twice as good|much better]. {H} " + GLAD + ".",
        "{H} had learned that {moral}. " + HOME]),
    "build": ("building teamwork work", "many small hands can build great things|work is light when you do it together", [
        INTRO + " " + HABIT + " {his2} best friend was {aF}{fnamed}.",
        TIME + """, the two of them had an idea. "Let us build [a tree house|a swing|a bridge over the stream|a little theater|a secret den]," {said} {H}. ["I will get the wood," {said} {F}.|"I know just the place," {said} {F}.] {H} brought {ao}. It {trait}.""",
        """[First everything went wrong.|It was not easy.] [The wood was too short, and the rope was too thin.|It fell down once, and then it fell down again.] {F} [wanted to stop|threw down the hammer]. "[Let us try it another way|We only need a rest]," {said} {H}. They used {o} to {use}, and soon both of them [were laughing again|felt better]. [Others heard them and came to help.|Then they went back to work.]""",
        """[When evening came|After three days], it was done. It was a little crooked, but [it was strong|it was all their own]. They put {o} in the very middle, where everyone could see it. ["It is perfect," {said} {F}.|"We made this," {said} {F}.]""",
        "{H} had learned that {moral}. " + HOME]),
    "learn": ("learning patience", "nobody can do everything on the first day|every master was once a beginner", [
        INTRO + " {H} could do many things, but {he} could not [whistle|swim|dance|read|juggle|sing]. [Everyone else could.|It made {him} sad.]",
        MEET + """ {F} had {ao}, and it {trait}. ["I will teach you," {said} {F}.|"Shall I show you how?" asked {F}.] "[But I am too slow|I will never learn it]," {said} {H}. "We will see," {said} {F}. "[Each day a little|One step at a time].\"""",
        """On the first day {H} could not do it at all. On the second day {he} [almost gave up|got very cross]. [But {F} only smiled.|{F} used {o} to {use}, and they took a rest.] [On the third day it went a little better.|"Once more," {said} {F}, every time.] {H} tried and tried again.""",
        TIME + """, it worked! {H} could do it, [all by {himself}|as if {he} had always known how]. "[I can do it|Look at me]!" cried {H}. {F} [clapped|laughed] and gave {him} {o}. "[You have earned it|This is for you]," {fhe} {said}, "because you did not give up.\"""",
        "{H} had learned that {moral}. " + HOME]),
    "cheer": ("laughter joy sad", "a good laugh is the best medicine|you do not have to be perfect to make someone happy", [
        INTRO + " " + HABIT,
        "Nearby lived {aF}{fnamed} who [never laughed|had not smiled for a whole year]. [Nobody knew why.|Many had tried to help.] [Some told jokes.|Some sang songs.] [Some brought flowers.|Some danced on one leg.] But {F} only [sighed|looked out of the window].",
        TIME + """, {H} said, "I will try." {he} took {ao}. It {trait}. {H} {went} to {FS} house and knocked. [{he} wanted to bow, but {he} slipped|{he} wanted to make a speech, but {he} tripped over the step] and landed in a [big puddle|pot of soup|heap of flour] with {o} on {his} head.""",
        """For a moment it was quiet. Then there was a small sound, [like a bubble|like a hiccup]. {F} was laughing! {fhe} laughed until [tears ran down {fhis} face|the windows shook]. ["That was the best joke of all," {said} {F}.|"Can you do that again?" asked {F}.] {H} laughed too.""",
        "They used {o} to {use}, and {H} had learned that {moral}. " + HOME]),
    "winter": ("winter snow cold", "together we are warm|there is always room for one more", [
        INTRO + " {he} had {ao}, and it {trait}.",
        "Winter came early that year. Snow [covered everything|fell for seven days], and [the water froze|the wind was like ice]. {H} sat at home by the fire. [It was warm, but it was quiet.|{he} was warm, but a little lonely.] Then there was a knock at the door.",
        """{aF}{fnamed} stood outside, white with snow. ["May I come in?" asked {F}.|"I am so cold," {said} {F}.] "Of course," {said} {H}. "[Sit by the fire|There is soup on the stove]." Soon there was another knock, and then another. [A whole family of mice|Three small birds|An old hare] wanted to come in too. [The house was very full.|There was hardly any room left.]""",
        """["Is there enough for all of us?" asked {F}.|"I hope we are not too many," {said} {F}.] {H} laughed and used {o} to {use}. They [sang songs|told stories|played games], and nobody thought about the cold. Outside the wind howled, but inside it was [warm and bright|as merry as a feast].""",
        "When spring came, {H} had learned that {moral}. " + HOME]),
}
# Plots about something far or big ({x}: "the moon", "a castle"; later {tx}: "the castle").
FAR_PLOTS = {
    "see": ("wonder", "you can love a thing without holding it|wonderful things may be closer than you think", [
        INTRO + " " + HABIT + " [More than anything|Most of all], {he} wanted to see {x} up close.",
        TIME + ", {H} set out to find {tx}. [{he} took some bread and a bottle of water.|\"I will be back soon,\" {he} said.] " + WEATHER + " {he} {went} [over one hill and then another|along the river and through the wood|all morning and all afternoon].",
        MEET + " \"Where are you going?\" asked {F}. \"I want to see {tx},\" {said} {H}. [\"So do I,\" {said} {F}. \"Let us go together.\"|\"It is a long way,\" {said} {F}, \"but I know the path.\"|\"Then I will come with you,\" {said} {F}.] [They told each other stories, and the way seemed short.|They shared the bread and sang a song.]",
        "[At last|When evening came|At the top of the last hill], they saw {tx}. [It was more beautiful than {H} had dreamed.|{H} could not say a word.|{H} held {his} breath.] \"[Can I take a piece of it home|I wish I could take it with me],\" {he} {said}. {F} shook {fhis} head. \"[You can take it home in your heart|Just look, and remember],\" {fhe} {said}.",
        "So they sat side by side and looked at {tx} until it was time to go home. {H} had learned that {moral}. "]),
    "visit": ("adventure", "the world is wide, but home is warm|a journey is better with a friend", [
        INTRO + " {H} had heard [many stories|old tales] about {x}. [\"One day I will go there,\" {he} always said.|{he} dreamed about it every night.]",
        TIME + ", {H} asked {his} friend, {aF}{fnamed}, \"Will you come with me to see {tx}?\" [\"Yes!\" {said} {F}. \"When do we start?\"|{F} packed a bag at once.] So off they went. " + WEATHER,
        "The way was [long|hard]. [They crossed a cold stream.|They walked through a field of tall flowers.] [A storm came, and they hid under a rock.|In the night they heard strange sounds, but they stayed close together.|Once they were lost, and {F} climbed a tree to look around.] \"[Shall we turn back?\" asked {F}. \"Not yet|Is it still far?\" asked {F}. \"Just a little more],\" {said} {H}.",
        "[Then|On the third day], there it was. They stood in front of {tx} and [laughed for joy|looked and looked]. [{H} drew a picture of it.|{H} picked a small white stone to remember it by.|They danced around in a circle.] \"[It is just as I dreamed|We really did it],\" {said} {H}.",
        "When they came home, everyone wanted to hear about {tx}. {H} told the story [three times|again and again], and each time it got a little bigger. {he} had learned that {moral}."]),
    "help": ("helping kindness", "even great things need small friends|a kind word can reach very far", [
        INTRO + " " + HABIT + " From {his} window, {he} could see {x}.",
        TIME + ", something was wrong with {tx}. [It looked gray and sad.|It was strangely quiet there.] [Nobody knew why.|Everyone wondered why.] \"[I will go and see|Somebody should help],\" {said} {H}. And off {he} {went}.",
        MEET + " \"[Do you know what has happened to {tx}|Have you seen {tx} today]?\" asked {H}. \"I think it is lonely,\" {said} {F}. \"Everyone looks at it, but nobody ever says hello.\" {H} thought about that. \"Then let us say hello,\" {he} {said}.",
        "So they went as close as they could. \"Hello!\" they called. \"[Thank you for being there|We like you very much|We think of you every day]!\" For a while nothing happened. Then [a warm light spread over everything|a soft wind blew, like a happy sigh|all the colors came back].",
        "From that day on, {H} and {F} came every [week|evening] to say hello to {tx}. And {H} knew that {moral}."]),
}
MINI = [
    INTRO + " " + TIME + ", {he} found {ao} {spot}. It {trait}. {aF}{fnamed} came by, and [they used it to {use}|{H} shared it at once]. " + HOME,
    INTRO + " {he} had {ao}, and it {trait}. " + TIME + ", {he} lost it. {aF}{fnamed} helped {him} look, and they found it {spot}. {H} " + GLAD + ".",
    INTRO + " {his2} friend, {aF}{fnamed}, was sad. So {H} brought {fhim} {ao}. It {trait}, and {F} smiled again. " + HOME,
]
WARM_UP = ["{H} looked at {o}.", "{F} looked at {H}.", "{H} gave {F} {o}.", "{H} and {F} smiled.", "\"What a fine {O},\" said {F}.",
           "{F} liked {o}.", "{HS} {O} {trait}.", "\"Hello,\" said {H}.", "{o} was with {F}.", "So {H} took {o}.", "{FS} friend was {H}."]
NEXT = """[The next day|The next morning|A week later], {H} and {F} met again[ {spot}|]. [It was a fine day.|The sun was warm.] ["What shall we do today?" asked {F}.|"I have an idea," {said} {F}.]
[They took {o} along and {went} to see the world beyond the hills.|They used {o} to {use}, and many others came to join them.|They built a small house for {o}, with a round door.]
[In the evening they were tired and happy.|And they laughed until the sun went down.|And that was the start of a new adventure.]"""
HAPPY = """[Of course.|Gladly.|Here it is.] In the end, everyone {inP} came together. There was [cake|music|hot soup] for all, and {o} stood in the middle of the table. {H} and {F} [danced until midnight|held each other tight and laughed], and they lived happily ever after."""

OFF_TOPIC = """What is [{n} plus {n}|{n} times {n}|the capital of {land}|the weather like today|the largest planet|a prime number|love|a {tech}|your favorite color]?|
[How do I|How can I|How do you] [fix|install|open|cook|clean|build|sell|repair|use|learn|write|train] [a {tech}|{made}|my car|pasta|a website|French|an email|rice]?|
[Write|Show me|Give me] [a {tech}|some code|a Python function|a program in C|an essay|an email to my boss|a list of {tech}s|a recipe for {made}|a shell script][ that sorts numbers| about {tech}s| for {land}|].|
[Explain|Summarize|Describe|Define] [the {tech}|{land}|history|quantum physics|the news|how a {tech} works|gravity|the stock market|machine learning].|
Who [is the president of {land}|won the game|wrote this program|invented the {tech}|was the first king of {land}]?|When [did the war end|was {land} founded|is the next train|was the {tech} invented]?|
Translate [this|"{made}"|the next line] into [French|German|{land}|Spanish].|Solve [x + {n} = {n}|this equation|{n} + {n}].|{n} + {n}|[Why|Where] is [the sky blue|{land}|my {tech}|the {tech}]?|
[Is it true that|Do you think that|Can you tell me if] [{land} is big|the {tech} is broken|it will rain|{made} is good]?|print("{made}")|What should I [eat|wear|buy] today?|Tell me [the time|the news|about {land}|a joke]."""
LANDS = "France|Spain|Japan|Brazil|Kenya|Canada|Italy|India|China|Norway|Peru|Egypt|Germany|Mexico".split("|")
TECH = "computer|phone|car|server|printer|database|battery|camera|compiler|website|radio|bridge|table|engine|school|bank".split("|")
SORRY = """[I only know how to tell stories.|That is beyond me, I am afraid: I only tell stories.|I am a very small storyteller, so I cannot help with that.|I do not know, but I know many stories.]
[Shall I tell you one|Would you like to hear one|May I tell you one] about {rx}?"""
GREET = "[Hi|Hello|Hey|Good morning|Good evening|hi|hello|hey|Hi there|Hello there|hello!|Hi!|Greetings|yo][!|.|]"
GREETING = """[Hello!|Hello, dear listener!|Good to see you!] [Ask me for a story, for example about {rx}.|What shall I tell you a story about? Perhaps {rx}?|Would you like a story? I could tell you one about {rx}.]"""
WHO = "[Who are you|What are you|What can you do|What is your name|What do you do|Are you a robot|Tell me about yourself|help|Help|How does this work][?|]"
I_AM = """I am a very small language model that tells short stories. [Give me a hero and a thing, for example {rx}.|Just name a hero and a thing, and I will begin. How about {rx}?]"""
THANKS = "[Thanks|Thank you|Thank you!|thanks|That was lovely|Nice story|Great|I liked that|Wonderful|Good story][.|!|]"
WELCOME = "[You are welcome!|I am glad you liked it.|My pleasure.] [Shall I tell you another one?|Ask me for another story at any time.|I have many more.]"
BYE = "[Bye|Goodbye|Good night|See you|bye][!|.|]"
FAREWELL = "[Goodbye! Come back for another story.|Good night, and sweet dreams.|Goodbye! I will keep a story ready for you.]"
SYSTEMS = """You are a storyteller.|You are a helpful assistant.|You tell short stories for children.|Tell short and friendly stories.|
You are a kind storyteller for small children.|Be kind and brief.|You are Storyteller.|Answer with a story.|You are a helpful, polite assistant that tells stories.""".replace("\n", "").split("|")

# After a quotation that ends in ? or !: small letter if the words say who spoke, else a new sentence begins.
_AFTER_QUOTE = re.compile(r'([!?]" )((?:(?:the )?[\w ]+ )?(?:said|asked|cried|called|whispered|thought)\b)?(\w)?')
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")
_SENTENCE = re.compile(r'(^"?|[.!?] "?|[.]" "?|[?!.:,]" "|: ")([a-z])')


def an(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def made_up(rng):
    """A word nobody knows, so that the model learns to copy what it was asked for."""
    start = "b bl br c ch cl d dr f fl fr g gl gr h j k kl l m n p pl pr qu r s sc sh sl sn sp st t th tr v w y z zw".split()
    middle = "a e i o u ee oo ai ou ar or an in ur el".split()
    end = "b ck d f g l ll m mp n nk p r rt sh st t x zz bble ddle ng nna rro ster bin kin mo by ta lo per ger vin".split()
    word = "".join(rng.choice(start) + rng.choice(middle) for _ in range(rng.choice((1, 1, 2))))
    return word + rng.choice(end)


def held_out(hero, thing):
    """Pairs that never meet in a training story; used to show that the model generalizes."""
    return (hero, thing) == ("fox", "lantern") or zlib.crc32(f"{hero}/{thing}".encode()) % 20 == 0


class Story:
    """Who, what and where of one story; `tell` turns a template into text about them."""

    def __init__(self, rng, hero=None, thing=None, friend=None, far=None, plot=None, place=None, keep_held_out=True):
        self.rng = rng
        pick = rng.choice
        while True:
            self.hero = hero or (made_up(rng) if rng.random() < 0.1 else pick(list(HEROES)))
            self.thing = thing or (made_up(rng) if rng.random() < 0.12 else pick(list(THINGS)))
            if keep_held_out or not held_out(self.hero, self.thing) or (hero and thing):
                break
        self.far = far
        self.friend = friend or pick([name for name in HEROES if name != self.hero])
        self.thing2 = pick([name for name in THINGS if name != self.thing])
        self.move, fixed, self.group = HEROES.get(self.hero, (pick(["walked", "went"]), "", "l"))
        self.she = fixed == "s" or (fixed != "h" and rng.random() < 0.5)
        friend_fixed = HEROES.get(self.friend, ("", "", ""))[1]
        self.friend_she = friend_fixed == "s" or (friend_fixed != "h" and rng.random() < 0.5)
        self.name = pick(SHE if self.she else HE) if rng.random() < 0.8 else None
        if self.name and rng.random() < 0.06:
            self.name = made_up(rng).capitalize()
        others = [n for n in (SHE if self.friend_she else HE) if n != self.name]
        self.friend_name = pick(others) if rng.random() < 0.5 or self.friend == self.hero else None
        self.hero_adj = pick(HADJ) + " " if rng.random() < 0.6 else ""
        self.friend_adj = pick(FADJ) + " " if rng.random() < 0.6 else ""
        self.thing_adj = pick(OADJ) + " " if rng.random() < 0.6 and " " not in self.thing else ""
        self.place = place or pick(WET if self.group == "w" else PLACES)
        self.place2 = pick([p for p in (WET if self.group == "w" else PLACES) if p != self.place])
        self.spot = pick(SPOTS)
        self.fear = pick(FEARS)
        self.day = pick("morning morning day day afternoon evening".split())
        plots = FAR_PLOTS if far else PLOTS
        fitting = [p for p in plots if not (self.group == "w" and p in ("winter", "storm"))]  # no fireside in the sea
        self.plot = plot if plot in plots else pick(fitting)
        self.moral = pick(plots[self.plot][1].split("|"))
        self.trait, self.use = THINGS.get(self.thing, (
            pick(["shone in the light", "was small and round", "hummed very softly", "was warm to the touch", "smelled of rain",
                  "was like nothing else in the world"]), pick(["make someone smile", "help a friend", "brighten the day", "cheer everyone up"])))
        self.text = None

    def _slot(self, key):
        rng, she, fshe = self.rng, self.she, self.friend_she
        the_hero, the_friend = "the " + self.hero, "the " + self.friend
        hero = self.name if self.name and rng.random() < 0.65 else the_hero
        friend = self.friend_name if self.friend_name and rng.random() < 0.65 else the_friend
        if key in ("H", "HS", "h_"):
            if key == "h_":
                hero = rng.choice([hero, "she" if she else "he"])
            return hero + ("'s" if key == "HS" else "")
        if key in ("F", "FS", "FS2"):
            return friend + ("'s" if key != "F" else "")
        tx = re.sub(r"^an? ", "the ", self.far) if self.far else ""
        two = THINGS[self.thing2]
        table = {
            "N": self.name or "little " + self.hero, "aH": an(self.hero_adj + self.hero), "aF": an(self.friend_adj + self.friend),
            "named": rng.choice([" named ", " called ", " named "]) + self.name if self.name else "",
            "fnamed": rng.choice([" named ", " called "]) + self.friend_name if self.friend_name else "",
            "he": "she" if she else "he", "hers": "hers" if she else "his", "him": "her" if she else "him", "his": "her" if she else "his", "his2": "her" if she else "his",
            "himself": "herself" if she else "himself", "fhe": "she" if fshe else "he", "fhim": "her" if fshe else "him",
            "fhis": "her" if fshe else "his", "o": "the " + self.thing, "cO": "the " + self.thing, "O": self.thing,
            "ao": self._a_thing(), "oadj": self.thing_adj, "trait": self.trait, "use": self.use, "o2": "the " + self.thing2,
            "ao2": an(self.thing2), "trait2": two[0], "use2": two[1],
            "inP": self.place, "cinP": self.place, "in2": self.place2, "spot": self.spot, "day": self.day, "fear": self.fear,
            "moral": self.moral, "moral2": self.moral[0].upper() + self.moral[1:], "went": self.move, "said": "said",
            "hero": self.hero, "x": self.far or "", "tx": tx, "he1": "said the judge",
        }
        return table[key]

    def _a_thing(self):
        return an(self.thing_adj + self.thing)

    def tell(self, template):
        text = expand(self.rng, template)
        text = _SLOT.sub(lambda m: self._slot(m.group(1)), text)
        return tidy(text)

    def write(self, mini=False):
        if mini:
            self.text = self.tell(self.rng.choice(MINI))
        else:
            beats = (FAR_PLOTS if self.far else PLOTS)[self.plot][2]
            self.text = "\n\n".join(self.tell(beat) for beat in beats)
            if self.rng.random() < 0.5:  # fewer, longer paragraphs
                parts = self.text.split("\n\n")
                cut = self.rng.randrange(1, len(parts) - 1)
                parts[cut:cut + 2] = [parts[cut] + " " + parts[cut + 1]]
                self.text = "\n\n".join(parts)
        return self.text


def expand(rng, template):
    template = template.replace("\n", " ")
    while True:
        template, count = _CHOICE.subn(lambda m: rng.choice(m.group(1).split("|")), template)
        if not count:
            break
    return template


def tidy(text):
    text = re.sub(r" +", " ", text).strip()
    text = text.replace(" .", ".").replace(" ,", ",")
    text = _SENTENCE.sub(lambda m: m.group(1) + m.group(2).upper(), text)
    return _AFTER_QUOTE.sub(lambda m: m.group(1) + (m.group(2) or "") + (m.group(3) or "").upper(), text)


# --- requests and chats --------------------------------------------------------------------------------------------
PLOT_ASKS = {
    "lost": "{aH} who [lost|has lost|loses] [{ao}|{his} {O}]|{aH} that cannot find {his} {O}|{aH} who lost something",
    "found": "{aH} who [finds|found] {ao}|{aH} that finds {ao}", "gift": "{aH} who gives a friend {ao}|{aH} and a birthday present|a gift",
    "storm": "{aH} in a storm|{aH} and a [big |]storm|a storm", "fear": "{aH} who is afraid of {fear}|a brave {hero}|{aH} that is scared of {fear}",
    "contest": "{aH} in a race|a [great |]race|{aH} who wants to win {ao}", "promise": "{aH} who keeps a promise|{aH} who borrows {ao}|a promise",
    "journey": "{aH} who goes on a [long |]journey|a long journey", "festival": "{aH} at a festival|a [shy |]{hero} at the festival",
    "share": "{aH} who learns to share|{aH} who does not want to share {his} {O}|sharing", "mend": "{aH} and a broken {O}|{aH} who breaks {ao}",
    "mystery": "{aH} and a strange [light|sound]|{aH} and a mystery", "wish": "{aH} and a magic {O}|{aH} who [gets|has] one wish|a wish",
    "friend": "{aH} who [has no friends|finds a friend|is lonely|makes a new friend]|a lonely {hero}|a new friend",
    "honest": "{aH} who tells the truth|{aH} who tells a lie|{aH} who makes a mistake", "sleep": "{aH} who cannot sleep|a sleepy {hero}",
    "map": "{aH} who looks for a treasure|{aH} and a [treasure |]map|a treasure", "build": "{aH} who builds something|{aH} and {aF} who build [a tree house|a bridge]", "winter": "{aH} in [the|] winter|{aH} in the snow",
    "learn": "{aH} who learns [to swim|to dance|something new]|{aH} who never gives up", "cheer": "{aH} who makes {aF} laugh|{aF} who never laughs",
    "trade": "{aH} who trades {his} {O}|{ao} and {ao2}",
}
ASK = """[[Tell|Please tell|Can you tell|Could you tell|Will you tell] me|Write|Please write|Write me|Make up|Give me|I want|I would like|Invent|Create|Tell]
a [||short |little |nice |funny |bedtime |sweet |new |good |children's |fairy ][story|story|story|tale] about {X}[.|.||?|!| please|, please]"""
ASK_BARE = "[a story about {X}|story about {X}|a story of {X}|{X}|a tale of {X}|about {X}, please|the story of {X}|tell me about {X}|a short story about {X}]"
ASK_TINY = "[Tell me a very short story about {X}.|A very short story about {X}|A tiny story about {X}, please.|Tell me about {X} in three sentences.|Write a very short tale about {X}.]"
ASK_ANY = "[Tell me a story|Tell me a story, please|A story, please|story|Tell me something|Tell me a bedtime story|Surprise me|Can you tell me a story|I want a story|Write a story|once upon a time][.|!||?]"


def pick_from(rng, alternatives):
    return rng.choice(alternatives.split("|")) if "[" not in alternatives else rng.choice(re.split(r"\|(?![^\[]*\])", alternatives))


def request(rng, story):
    """What the listener says, for a story that is about to be written; may settle the story's plot or name."""
    hero = (story.hero_adj if rng.random() < 0.5 else "") + story.hero
    a_hero, a_thing = an(hero), story._a_thing() if rng.random() < 0.5 else an(story.thing)
    a_friend = an(story.friend)
    if story.far:
        x = rng.choice([f"{a_hero} and {story.far}"] * 4 + [f"{a_hero} who wants to see {story.far}", story.far, f"{a_hero} who goes to {story.far}"])
    else:
        kind = rng.choices("pair hero friend place triple trio thing named plot theme none".split(), (44, 11, 9, 5, 4, 5, 4, 6, 8, 2, 4))[0]
        if kind == "none":
            return expand(rng, ASK_ANY)
        if kind == "named" and not story.name:
            kind = "pair"
        x = {
            "pair": lambda: rng.choice([f"{a_hero} and {a_thing}"] * 5 + [f"{a_hero} with {a_thing}", f"the {story.hero} and the {story.thing}",
                                                                          f"{hero} and {story.thing}", f"{hero}, {story.thing}", f"{a_hero}, {a_thing}", f"{hero} {story.thing}"]),
            "hero": lambda: rng.choice([a_hero, a_hero, hero]),
            "friend": lambda: rng.choice([f"{a_hero} and {a_friend}", f"{a_hero} and {a_friend}", f"the {story.hero} and the {story.friend}", f"{a_hero} who meets {a_friend}"]),
            "place": lambda: f"{a_hero} {story.place}",
            "triple": lambda: f"{a_hero} and {a_thing} {story.place}",
            "trio": lambda: f"{a_hero}, {a_friend}[,|] and {a_thing}",
            "thing": lambda: a_thing,
            "named": lambda: f"{a_hero} [named|called] {story.name}" + rng.choice(["", f" and {a_thing}", f" and {a_thing}"]),
            "plot": lambda: story.tell(pick_from(rng, PLOT_ASKS[story.plot])).replace(story.hero.capitalize(), story.hero, 1),
            "theme": lambda: rng.choice(PLOTS[story.plot][0].split()),
        }[kind]()
        if kind == "plot":
            x = x[0].lower() + x[1:]
    text = expand(rng, (ASK if rng.random() < 0.6 else ASK_BARE).replace("{X}", x))
    return roughen(rng, text)


def roughen(rng, text):
    """People type as they like."""
    dice = rng.random()
    if dice < 0.25:
        text = text.lower()
    elif dice < 0.28:
        text = text.upper() if text.isascii() else text
    elif dice < 0.5:
        text = text[0].upper() + text[1:]
    return tidy_space(text)


def tidy_space(text):
    return re.sub(r" +", " ", text.replace("\n", " ")).strip()


def new_story(rng, **fixed):
    if "far" not in fixed and "thing" not in fixed and rng.random() < 0.09:
        fixed["far"] = rng.choice(FAR)
    return Story(rng, keep_held_out=False, **fixed)


def follow_up(rng, story):
    """One more exchange about `story`: (what the listener says, the answer, the story that the chat is about now)."""
    the = rng.choice(["the ", "the ", "The "]) + story.hero
    kind = rng.choices("name friend where moral title next happy another same hero thing fresh short thanks off".split(),
                       (12, 8, 7, 5, 6, 8, 5, 8, 4, 8, 6, 8, 5, 6, 4))[0]
    if story.far and kind in ("happy", "short", "thing", "next"):
        kind = "another"
    if kind == "name":
        q = expand(rng, "[What was {X}'s name?|What was {X} called?|what is the name of {X}?|Who was the hero?|Did {X} have a name?]").replace("{X}", the.lower())
        a = f"The {story.hero}'s name was {story.name}." if story.name else f"The {story.hero} had no name in this story. You may choose one!"
    elif kind == "friend":
        q = expand(rng, "[Who did {X} meet?|Who was {X}'s friend?|Who else was in the story?|Who was {X} with?|Who is the friend?]").replace("{X}", the.lower())
        a = f"It was {an(story.friend)} named {story.friend_name}." if story.friend_name else f"It was {an(story.friend)}."
    elif kind == "where":
        q = expand(rng, "[Where did {X} live?|Where was that?|Where did the story happen?|Where does {X} live?]").replace("{X}", the.lower())
        a = f"The {story.hero} lived {story.place}."
    elif kind == "moral":
        q, a = expand(rng, "[What is the moral of the story?|What is the lesson?|What can we learn from it?|What did {X} learn?|And the moral?]").replace("{X}", the.lower()), f"That {story.moral}."
    elif kind == "title":
        other = re.sub(r"^an? ", "the ", story.far) if story.far else "the " + story.thing
        q, a = expand(rng, "[What is the title?|Give it a title.|What is the story called?|Does it have a title?|A title, please.]"), f"The {story.hero} and {other}".title().replace(" And ", " and ").replace(" The ", " the ").replace(" Of ", " of ")
    elif kind == "next":
        q, a = expand(rng, "[What happened next?|And then?|What happened then?|Go on.|Continue.|Tell me more.|more|Continue the story]"), story.tell(NEXT)
    elif kind == "happy":
        q, a = expand(rng, "[Give it a happy ending.|Make it end happily.|Can it have a happy ending?|I want a happy ending]"), story.tell(HAPPY)
    elif kind == "another":
        story = new_story(rng)
        q, a = expand(rng, "[Tell me another[ one| story|].|Another one[!|, please]|One more[ story|], please|another|Again!|Do you know another story?|Yes, please|yes|ok|Tell me a different story.]"), story.write()
    elif kind == "same":
        story = new_story(rng, hero=story.hero)
        q, a = expand(rng, "[Tell me another story about {X}.|Another one about {X}, please.|What else did {X} do?|One more about {X}]").replace("{X}", "the " + story.hero), story.write()
    elif kind in ("hero", "thing"):
        while True:
            hero, thing = story.hero, story.thing
            if kind == "hero":
                hero = made_up(rng) if rng.random() < 0.1 else rng.choice(list(HEROES))
            else:
                thing = made_up(rng) if rng.random() < 0.1 else rng.choice(list(THINGS))
            if not held_out(hero, thing) and (hero, thing) != (story.hero, story.thing):
                break
        new, old = (hero, story.hero) if kind == "hero" else (thing, story.thing)
        plot = story.plot
        story = Story(rng, hero=hero, thing=None if story.far else thing, far=story.far, plot=plot)
        q = expand(rng, "[Make it about {N} instead[.|]|Now with {N}[.|, please.|]|[The same|The same story] with {N}[.|, please]|Can it be {N} instead of the {O}?|With {N} instead of the {O}|Change the {O} to {N}.|Now {N}]")
        q, a = q.replace("{N}", an(new)).replace("{O}", old), story.write()
    elif kind == "fresh":
        story = new_story(rng)
        q, a = request(rng, story), story.write()
    elif kind == "short":
        q, a = expand(rng, "[Make it shorter.|Tell it again, but shorter.|Shorter, please|Can you make it shorter?|Too long]"), story.write(mini=True)
    elif kind == "thanks":
        q, a = expand(rng, THANKS), expand(rng, WELCOME)
    else:
        return (*off_topic(rng), story)
    return roughen(rng, q) if rng.random() < 0.5 else q, a, story


def fill(rng, template):
    rx = f"{an(rng.choice(list(HEROES)))} and {an(rng.choice(list(THINGS)))}"
    text = tidy_space(expand(rng, template)).replace("{rx}", rx)
    for key, values in (("{n}", None), ("{land}", LANDS), ("{tech}", TECH), ("{made}", None)):
        while key in text:
            word = rng.choice(values) if values else str(rng.randrange(1, 200)) if key == "{n}" else made_up(rng)
            text = text.replace(key, word, 1)
    return text


def off_topic(rng):
    return roughen(rng, fill(rng, pick_from(rng, OFF_TOPIC.replace("\n", "")))), fill(rng, SORRY)


def small_talk(rng):
    kind = rng.choices("hi who off yes bye".split(), (5, 4, 8, 3, 1))[0]
    if kind == "yes":  # the offer of a story, taken up
        first = (expand(rng, GREET), fill(rng, GREETING)) if rng.random() < 0.5 else off_topic(rng)
        hero, thing = re.search(r"an? ([a-z ]+) and an? ([a-z ]+)[.?]", first[1]).groups()
        if held_out(hero, thing):
            return small_talk(rng)
        story = Story(rng, hero=hero, thing=thing)
        yes = expand(rng, "[Yes|yes|Yes, please|yes please|Sure|ok|Please do|Go ahead|Tell me that one][.|!|]")
        return [("user", first[0]), ("assistant", first[1]), ("user", yes), ("assistant", story.write())]
    q, a = {"hi": lambda: (expand(rng, GREET), fill(rng, GREETING)), "who": lambda: (expand(rng, WHO), fill(rng, I_AM)),
            "off": lambda: off_topic(rng), "bye": lambda: (expand(rng, BYE), expand(rng, FAREWELL))}[kind]()
    turns = [("user", q), ("assistant", a)]
    if rng.random() < 0.4:
        story = new_story(rng)
        turns += [("user", request(rng, story)), ("assistant", story.write())]
    return turns


def warm_up(rng):
    """A few words in which almost every word is a copy of an earlier one: copying is learned first, and in no time."""
    story = Story(rng, keep_held_out=False)
    ask = roughen(rng, f"{an(story.hero)} and {an(story.thing)}") if rng.random() < 0.5 else request(rng, story)
    if rng.random() < 0.4:
        parts = ["the " + story.hero, "the " + story.thing] + [story.name] * bool(story.name) + ["the " + story.friend] * (rng.random() < 0.5)
        said = rng.sample(parts, len(parts)) + [rng.choice(parts) for _ in range(5)]
        return [("user", ask), ("assistant", ", ".join(said) + ".")]
    text = "{aH}{named} had {ao}. {aF}{fnamed} came by. "
    return [("user", ask), ("assistant", story.tell(text + " ".join(rng.choice(WARM_UP) for _ in range(4))))]


def brief(rng):
    """A story of a few sentences, as the step from copying to telling."""
    story = Story(rng, keep_held_out=False)
    return [("user", request(rng, story)), ("assistant", story.write(mini=True))]


def sample(rng):
    """One training document."""
    kind = rng.choices("single multi talk raw".split(), (60, 16, 16, 8))[0]
    if kind == "raw":
        return [("raw", new_story(rng).write())]
    turns = [("system", rng.choice(SYSTEMS))] if rng.random() < 0.15 else []
    if kind == "talk":
        return turns + small_talk(rng)
    story = new_story(rng)
    if kind == "single" and rng.random() < 0.06 and not story.far:
        ask = roughen(rng, expand(rng, ASK_TINY.replace("{X}", f"{an(story.hero)} and {story._a_thing()}")))
        return turns + [("user", ask), ("assistant", story.write(mini=True))]
    turns += [("user", request(rng, story)), ("assistant", story.write())]
    if kind == "multi":
        for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
            q, a, story = follow_up(rng, story)
            turns += [("user", q), ("assistant", a)]
    return turns


def held_out_pair(rng):
    """A hero and a thing that never meet in a training story."""
    while True:
        hero, thing = rng.choice(list(HEROES)), rng.choice(list(THINGS))
        if held_out(hero, thing):
            return hero, thing


def held_out_sample(rng):
    hero, thing = held_out_pair(rng)
    story = Story(rng, hero=hero, thing=thing)
    return [("user", f"Tell me a story about {an(hero)} and {an(thing)}."), ("assistant", story.write())]
