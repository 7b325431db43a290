"""Whose is it? Finds out whether a sentence is about somebody whom a fact does not know, in English and Japanese.

Persons are nouns of kin, company and trade, people named by where they live ("the family upstairs", 隣の部屋の人), and names:
a capitalised word that owns something or does something, a Japanese name before は, が, も or の. The rule of both
languages is the grammar of the subject: a sentence whose subject is somebody else is about them, unless the user takes
part in the same clause ("my friend gave me", 兄が勧めてくれた), owns what is said before the value ("my mother bakes for my
birthday"), or becomes the topic before the value (妻は6時、私は7時).

Bias: an unknown name counts as somebody else, so a store that names the user and a caller that does not say so
(`user`) lose that sentence. Lists of given and family names are short; rare names at a sentence's start are found by
the verb that follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kiokulab.text import KANJI, KATAKANA, normalise

# concept -> words, so that 妹 and "sister" are one; a fact about them knows them by its own text
_PEOPLE = {
    "mother": "mother mum mom mama mummy mommy 母 お母さん 母親 おふくろ ママ",
    "father": "father dad papa daddy 父 お父さん 父親 おやじ 親父 パパ",
    "parents": "parents folks 両親 親",
    "brother": "brother bro 兄 弟 お兄さん お兄ちゃん 兄貴 弟さん",
    "sister": "sister sis 姉 妹 お姉さん お姉ちゃん 妹さん",
    "siblings": "sibling siblings twin きょうだい 兄弟 姉妹",
    "grandmother": "grandmother grandma gran granny nan nana 祖母 おばあちゃん おばあさん ばあちゃん",
    "grandfather": "grandfather grandpa grandad granddad 祖父 おじいちゃん おじいさん じいちゃん",
    "grandparents": "grandparents grandparent 祖父母",
    "aunt": "aunt auntie aunty 叔母 伯母 おば おばさん",
    "uncle": "uncle 叔父 伯父 おじ おじさん",
    "cousin": "cousin いとこ 従兄 従姉 従弟 従妹 従兄弟 従姉妹 はとこ",
    "nephew": "nephew 甥 甥っ子",
    "niece": "niece 姪 姪っ子",
    "relative": "relative relatives 親戚 親類",
    "wife": "wife 妻 嫁 奥さん 家内 奥様",
    "husband": "husband 夫 旦那 主人 ご主人 旦那さん",
    "partner": "partner spouse fiancé fiancée fiance fiancee girlfriend boyfriend 彼氏 恋人 婚約者 パートナー 配偶者",
    "ex": "ex ex-wife ex-husband ex-boyfriend ex-girlfriend 元カレ 元カノ 元彼 元妻 元夫 前妻 前夫",
    "son": "son 息子 長男 次男 三男",
    "daughter": "daughter 娘 長女 次女 三女",
    "child": "kid kids child children toddler baby stepson stepdaughter godson goddaughter grandson granddaughter grandchild grandkid 孫 孫娘 うちの子 子ども 子供 赤ちゃん 下の子 上の子 末っ子",
    "friend": "friend buddy pal mate bestie classmate schoolmate teammate acquaintance penpal 友人 友達 友だち 親友 ともだち 知人 知り合い 同級生 仲間 悪友 旧友 幼なじみ 幼馴染 幼馴染み ママ友 パパ友 クラスメート チームメイト 飲み友達",
    "colleague": "colleague coworker co-worker workmate deskmate intern trainee apprentice assistant 同僚 後輩 先輩 部下 同期 インターン 元同僚 会社の人 隣のチーム 隣の部署 新人 バイト",
    "boss": "boss manager supervisor 上司 部長 課長 社長 店長 係長 専務 主任 所長 校長 園長",
    "neighbour": "neighbour neighbor 隣の人 隣人 近所の人 お隣さん お隣 お向かいさん 向かいの人 お向かい ご近所さん 隣の家 隣家 向かいの家 裏の家 隣の席の人 隣の部屋の人 近所の方 隣の方 上の階の人 下の階の人 階下の人 町内の人",
    "roommate": "roommate flatmate housemate lodger ルームメイト 同居人 ハウスメイト",
    "landlord": "landlord landlady 大家 大家さん 家主",
    "teacher": "teacher coach tutor instructor trainer professor mentor lecturer コーチ 担任 先生 教授 恩師 師匠 講師",
    "inlaw": "mother-in-law father-in-law brother-in-law sister-in-law son-in-law daughter-in-law in-laws 義母 義父 義兄 義弟 義姉 義妹 義理の母 義理の父 義両親 姑 舅 義理の兄 義理の姉 義理の弟 義理の妹",
    "client": "client customer patient tenant guest visitor クライアント お客さん 取引先 顧客 患者 客",
    "pupil": "student pupil 生徒 教え子 弟子 学生",
    "step": "stepmother stepfather stepmum stepdad stepbrother stepsister godmother godfather",
    "someone": "guy bloke lady woman man gentleman 誰か ある人 あの人 その人 常連さん 友人の友人 彼 彼女 彼ら 男性 女性 おじさん",
    "employer": "employer company firm workplace",
    "trade": "accountant lawyer plumber postman builder electrician mechanic nurse babysitter nanny gardener receptionist therapist 会計士 弁護士 大工 看護師 受付",
    "hairdresser": "hairdresser barber stylist 美容師 床屋さん",
    "dentist": "dentist",
    "doctor": "doctor gp physician 医者 主治医",
    "physio": "physio physiotherapist",
    "cleaner": "cleaner",
    "vet": "vet",
}
_WORD_TO_PERSON = {word: concept for concept, words in _PEOPLE.items() for word in words.split()}
# they serve the user: theirs only what they own or do
_PROVIDERS = {
    "trade",
    "hairdresser",
    "dentist",
    "doctor",
    "physio",
    "cleaner",
    "vet",
}


def _is_english(word: str) -> bool:
    return word.isascii() or word[0] == "f"


_EN_PEOPLE = "|".join(sorted((re.escape(w) for w in _WORD_TO_PERSON if _is_english(w)), key=len, reverse=True))
_JA_PEOPLE = "|".join(sorted((w for w in _WORD_TO_PERSON if not _is_english(w)), key=len, reverse=True))

GIVEN_NAMES = frozenset(
    (
        "aaron adam adrian aiko akira alan albert alex alexander alfie ali alice alicia alina amara amelia amir amy ana anders andre andrea andrew andy angela anika anita ann anna anne anneke "
        "annika anthony anton antonio anya arjun arthur asha astrid aya barbara beatrice beatriz ben benedikt benjamin bernadette beth bianca bill bjorn boris brandon brenda brian bruno caleb "
        "camille carl carla carlos carmen caroline catherine cecilia charlie charlotte chen chloe chris christian christina claire clara claudia colin connor daisuke dan daniel daniela "
        "danny david deborah dennis derek diana diego dmitri dominic donna dorothy ed edith eduardo edward elena eli elif elise eliza elizabeth ella ellen emi emil emily emma eric erik erika ethan "
        "eva evan eve fatima felix fiona frank frankie fred freya gabriel gareth gary george georgia gemma giulia gloria grace graham greg greta hana hannah hans haruka haruki harry heather "
        "heidi helen helena henry hiro hiroshi holly hugo hugh ian ibrahim ida ines ingrid irene iris isaac isabel isabella ivan ivy jack jacob jake jakob james jamie jan jane janet jason javier "
        "jean jenny jeremy jess jessica jim jin joan joanna joe joel johan john jon jonas jonathan jorge jose joseph josh joshua joy juan judith judy julia julian julie jun jurgen kai karen karin "
        "karl kate katherine kathy katie keiko keith kelly ken kenji kenta kevin kim klaus kofi kumiko kyle lara lars laura lauren lea leah leila lena leo leon lewis liam lila lily linda linh lisa lorna "
        "louis louise lucas lucia lucy luis luka luke luna lydia maeve magnus mai makoto malik mandy manuel marco marcus margaret maria marie marina mario mark marta martha martin mary masato matt "
        "matteo matthew maurice max maya megan mei mia michael michelle miguel mika mike mila milan ming miriam mohammed molly mona monica nadia naoki naomi natalie natasha nathan neil nick nicola nicole "
        "nikhil nina noah noor nora oleg olga oliver olivia omar oren oscar otto owen pablo pamela patricia patrick paul paula pavel pedro penny peter petra phil philip pia pierre priya rachel rafael raj "
        "rahul ravi rebecca reiko ren rita rob robert roberta robin rosa rose rosie ross ruth ryan ryo sachiko sakura sally sam samantha samir samuel sandra sanjay sara sarah satoshi scott sean selma "
        "sergio shauna shinji simon sofia sonia sophia sophie stefan stella stephen steve steven stuart sue susan sven tamsin tanya tariq taro ted teresa thea theo thomas tim tina tobias tom tomas tommy "
        "toni tony tracy ulrich ursula valentina vanessa vera victor victoria vikram vincent wei wendy will william winifred xavier yara yasmin yoko yuki yuko yumi yusuf yuto yvonne zara zoe"
    ).split()
)
# capitalised words that begin sentences and notes and are no names, beyond those that a fact itself uses
_NO_NAME = frozenset(
    (
        "user users it that there here what let he she who they we you i this these those my our his her their its the a an assistant human speaker everyone everybody someone somebody nobody nothing everything today tomorrow "
        "yesterday tonight now then how where when why which whose whoever whatever one two three both each every all some any most many much half part rest other another work home life school university college office job "
        "breakfast lunch dinner supper brunch tea coffee water milk food meal rent money pay salary budget price cost bill insurance bank account savings donation car bike bicycle bus train tram commute parking plate "
        "dog cat pet puppy kitten plant garden house flat apartment room kitchen floor address street town city hometown country place number code password pin phone laptop computer tablet plan contract contact emergency "
        "birthday anniversary wedding holiday vacation trip travel flight hotel date time day week month year morning afternoon evening night weekend spring summer autumn fall winter "
        "practice rehearsal lesson class course training session meeting appointment checkup visit exam race marathon match game run swim swimming running tennis yoga gym pottery choir guitar piano club team project deadline shift "
        "medicine medication dose allergy doctor dentist vet physio haircut hair cleaner cleaning delivery collection bins bin trash garbage recycling podcast radio music song book author restaurant cafe bar shop shoe shoes size weight height age "
        "name nickname favourite favorite usual current new old previous next last first second regular daily weekly monthly yearly also note update correction reminder fact memory summary key likes prefers wants has is was are does goes lives works drives "
        "plays drinks eats takes uses owns wakes gets keeps runs swims reads listens studies studied volunteers donates saves pays visits meets sleeps practises practices please yes no ok okay thanks sorry well anyway apparently actually "
        "nowadays currently previously formerly originally recently usually sometimes always never often before after since until during instead if because while though although but and or so maybe perhaps even only just "
        "god christmas easter january february march april may june july august september october november december monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays sundays "
        "mr mrs ms dr english japanese british american french german italian spanish chinese korean japan england london tokyo kyoto osaka"
    ).split()
)
_VERB = (
    r"(?:is|was|has|had|does|did|goes|went|lives|lived|works|worked|wakes|gets|got|takes|took|eats|ate|drinks|drank|plays|played|runs|ran|swims|swam|sings|sang|drives|drove|rides|rode|walks|uses|used|owns|"
    r"keeps|kept|wears|pays|paid|saves|gives|gave|donates|volunteers|meets|meditates|commutes|studies|studied|teaches|learns|reads|listens|watches|likes|loves|hates|adores|prefers|wants|needs|orders|buys|bought|sells|"
    r"visits|travels|flies|moved|grew|parks|banks|insures|sets|starts|finishes|sees|comes|came|rehearses|practises|practices|trains|attends|follows|supports|cooks|bakes|makes|made|says|said|told|swears|never|always|"
    r"usually|often|also|still|just|recently|can't|cannot|doesn't|isn't|puts|carries|calls|named|chose|picked|switched|changed|joined|left|quit|adopted|booked|ordered|donated|enjoys|enjoyed|plans|planned|leaves|stays|met|holds|collects|picks|tries|tried|turns|turned|celebrates|sleeps|rents|rented|hires|stores|grows|waters|does)"
)
_UPSTAIRS = (
    r"(?:upstairs|downstairs|next door|opposite|across the (?:street|hall|road|corridor|landing)|down the (?:hall|road|street)|over the road|(?:from|in|at) (?:number|flat|apartment|house) \w+|"
    r"(?:on|from) the (?:\w+ )?floor (?:above|below)|along the corridor|on the other side)"
)
_ELSEWHERE = re.compile(
    rf"(?<![a-z])(?:the|that|those|a|an|some|our)(?: [a-z]+){{0,2}} (?:people|person|couple|family|dog|cat|man|woman|guy|lady|boy|girl|kid|kids|student|students|tenant|tenants|lot|house|flat|household|baby|pet|puppy) (?:(?:who|that) (?:lives?|live) |living |from )?{_UPSTAIRS}"
    rf"|^(?:at |the )?next door\b(?! to)|\b(?:the|some) other (?:team|department|group|family|couple|guy)\b|\b(?:upstairs|downstairs|next-door) (?:neighbou?rs?|tenants?|people)\b"
)
_ELSEWHERE_JA = re.compile(
    r"実家(?:の(?!(?:私|自分|家業|母|父|親))|に(?:は|も)|では|は|が)|(?:隣|お隣|となり|向かい|お向かい|近所|裏|上の階|下の階|階上|階下|上階|隣室|隣の部屋|隣の家)の(?:[^、。はがのに]{0,8}の)?"
    r"(?:家|お宅|お家|部屋|人|方|子|お子さん|奥さん|旦那さん|ご主人|主人|おじさん|おばさん|ご夫婦|夫婦|一家|家族|住人|学生|犬|猫|ワンちゃん|わんちゃん|愛犬|ペット)[^、。]{0,6}?(?:の|は|が|も|では|って|、)"
)
_PET_NEAR_JA = re.compile(r"(?:隣|お隣|向かい|お向かい|近所|裏)の(?=(?P<x>[^、。]{1,8}?)(?:は|が|の名前|って))")

_EN_PERSON = re.compile(rf"(?<![a-z-])(?P<p>{_EN_PEOPLE})(?P<plural>s)?(?P<own>'s|s'|'(?= ))?(?![a-z-])")
# 新しいとこ (a new place) is no cousin
_JA_PERSON = re.compile(
    rf"(?<![{KANJI}])(?<![しいなきさかよつむろ](?=いとこ))(?P<p>{_JA_PEOPLE})(?:さん|ちゃん|くん|君|様|たち|達|夫婦|一家|家|の家|のところ|んち|の会社|宅|の部屋)?(?:[{KANJI}{KATAKANA}]{{1,5}}(?:さん|くん|ちゃん)?)?(?P<role>の|は|が|も|って|に(?:は|も)|では|によると|いわく|曰く|、)"
)
_ME = re.compile(
    r"(?<![a-z'])(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|we're|we've|we'll|us|our|ours|user|user's|users)(?![a-z'])"
)
_ME_ACTS = re.compile(
    r"(?<![a-z'])(?:i|i'm|i've|i'd|i'll|me|myself|we|we're|we've|we'll|us|user)(?![a-z']|'s (?!been|got|going))"
)
_ME_OWNS = re.compile(r"(?<![a-z'])(?:my|our|user's|mine|ours)(?![a-z'])")
_PERSON_PHRASE = re.compile(
    rf"(?:(?:some|one|two|a few|most|all) of )?(?:my|our|the user's|user's|his|her|their|an|a|the|some|one)(?: (?!(?:my|our|his|her|their|the|an?|of|is|and|or|with|to|for)\b)[a-z]+(?<!'s)){{0,2}}? (?P<q>{_EN_PEOPLE})s?(?P<own>'s|s'|'(?= ))?(?: of (?:mine|ours|the user's|the user))?(?![a-z-])"
)
_ASIDE = re.compile(
    r"(?<![a-z])(?:before i forget|while (?:i'm|we're) at it|did i (?:mention|tell you)(?: that)?|as (?:i|we) (?:\w+ )?(?:saw|heard|said|know|mentioned)|i (?:think|guess|believe|heard|hear|hope|suppose|mean|was told|just heard|learned)(?: that)?|"
    r"(?:told|tells|asked|showed|reminded) (?:me|us)(?: that| about)?|if you ask me|let me (?:add|say|think|tell you)|i(?:'ve)? (?:just )?(?:noticed|found out|discovered)(?: that)?|you know)(?![a-z'])"
)
_OPENING = re.compile(
    r"^(?:(?:oh|and|also|so|but|well|anyway|by the way|apparently|incidentally|speaking of which|for what it's worth|as it happens|funnily enough|just so you know|for the record|on another note|user said|note)[,: ]+)+"
)
_PERSON_SUBJECT = re.compile(
    r"^# |(?<!with )(?<!from )(?<!and )(?<!to )(?<!by )(?<!for )(?<!of )# (?!(?:and|or|in|on|at|for|to|with)\b)\w"
)
_OF_PERSON = re.compile(
    r"\b(?:of|by|for|belongs to|owned by|with) #(?![a-z'])|\b(?:is|was|are) #'s\b|(?:where|that|which|who|whom) # \w"
)
_NOT_MINE = re.compile(
    r"\bnot (?:mine|ours|my own|(?:of |for |about )?(?:the )?user(?:'s)?|me|us)(?![a-z'])(?! the)|(?:私|自分|うち|ユーザー)の?(?:もの|こと)?(?:では|じゃ)な|(?:私|ユーザー)ではなく"
)
_THEIR = re.compile(r"(?<![a-z])(?:his|her|their|him|them|he|she|they)(?![a-z])")
_HEARSAY = re.compile(r"そうです|そうだ|らしい|だって|んだと|とのこと|と言って|と話し|と聞")
_ME_JA = re.compile("私(?!事|服|立|鉄|物)|僕|俺|自分|うち(?:は|の(?!子)|で|も)|わたし|あたし|ユーザー|我が家|わが家")
_FAVOUR = re.compile("くれ|くださ|下さ|勧め|すすめ|紹介|誘|教えてもら|譲ってもら")
_CLEFT_JA = re.compile(
    rf"(?:の|な人|人)は、?(?:[^、。]{{0,8}}の)?(?P<p>{_JA_PEOPLE})(?:さん|ちゃん|くん|たち)?(?:だけ|一人)?(?=だ|です|である|で、|なん|らしい|みたい|。|$)"
)
_NO_OWNING_JA = re.compile(
    "影響|勧め|すすめ|薦め|紹介|誘い|付き添い|付き合い|お下がり|代わり|ため|手伝い|都合|看病|介護|世話|送り|迎え|お迎え|おかげ|お陰|頼み|提案|教え|希望|意見|話|付添|頃|ころ|とき|時|手作り|作|淹れ|握|運転"
)
# after the end of a clause another person may come in: 息子はノルウェーにいて、向こうの同僚が
_NEXT_CLAUSE_JA = re.compile(
    r"(?:まして|いて|して|んで|なら|たら|ので|けど|けれど|(?<=[だすたいる])から|(?<=[すだるた])が|(?<=[いるただ])し)、"
)
_HONORIFIC = re.compile(
    rf"(?P<full>(?P<n>[{KANJI}{KATAKANA}ー]{{1,6}}|[ぁ-ん]{{2,4}}(?=さん|くん|ちゃん))(?:さん|くん|ちゃん|君|先輩|様|氏|先生))(?P<role>の|は|が|も|って|によると)"
)
_NO_HONORIFIC = {
    "お客",
    "皆",
    "奥",
    "娘",
    "息子",
    "歯医者",
    "医者",
    "たくさ",
    "みな",
    "お母",
    "お父",
    "大家",
    "なに",
    "おば",
    "おじ",
    "お子",
    "生協",
    "業者",
    "店員",
}
_SURNAMES = (
    "佐藤 鈴木 高橋 田中 伊藤 渡辺 山本 中村 小林 加藤 吉田 山田 佐々木 山口 松本 井上 木村 林 清水 山崎 森 池田 橋本 阿部 石川 山下 中島 石井 小川 前田 岡田 長谷川 藤田 後藤 近藤 村上 遠藤 青木 坂本 斎藤 斉藤 "
    "福田 太田 西村 藤井 金子 岡本 藤原 三浦 中野 中川 原田 松田 竹内 小野 田村 中山 和田 石田 森田 上田 原 内田 柴田 酒井 宮崎 横山 高木 安藤 宮本 大野 小島 工藤 谷口 今井 高田 増田 丸山 杉山 村田 大塚 新井 小山 平野 藤本 河野 上野 野口 武田 松井 千葉 菅原 岩崎 木下 久保 佐野 野村 松尾 市川 菊地 杉本 古川 大西 島田 水野 桜井 渡部 吉川 山内 西田 飯田 菊池 西川 北村 五十嵐 安田 川口 平田 関 本田 中田 川崎 本間 浜田 大久保 服部 樋口 川村 田口"
).split()
_GIVEN_JA = (
    "美咲 健太 翔平 陽菜 大輔 結衣 拓也 真由美 直樹 彩香 亮太 恵子 誠司 千尋 悠斗 裕子 浩二 奈々子 慎一 由美子 和也 沙織 隆史 楓花 祐介 文乃 康平 太郎 花子 次郎 一郎 健二 健一 誠 翔 蓮 陽翔 湊 樹 大翔 葵 凛 結菜 さくら 美優 愛 優 "
    "直人 拓海 大樹 達也 哲也 雅人 正人 明 実 茂 隆 浩 剛 豊 進 修 学 久美子 陽子 和子 幸子 節子 洋子 京子 恵美 明美 由美 智子 直美 美穂 真理子 理恵 香織 麻衣 愛美 舞 彩 桃子 七海 遥 萌 未来 菜々子 里奈 優花 亜美 絵里 綾 涼 涼子 圭太 圭介 雄太 雄大 裕太 祐太 俊介 俊 智也 智 "
    "浩一 浩介 孝之 貴之 博之 弘 清 勇 学 徹 聡 聡子 淳 純 純子 薫 忍 司 仁 亮 涼太 颯太 悠真 悠人 陸 海斗 駿 蒼 ケンジ ケンタ タロウ ハナコ ユキ ミキ アキラ ユウタ サキ マリ リナ エミ アヤ ユイ ショウ マイク ジョン トム アンナ エマ サラ"
).split()
_BARE_NAME_JA = re.compile(
    rf"(?:^|[、。「（(]|(?:友人|友達|同僚|先輩|後輩|同期|親友|従兄|従妹|いとこ|弟|妹|兄|姉|上司|部下|隣|彼氏|彼女|息子|娘)の)(?P<n>(?:{'|'.join(_SURNAMES)})(?:[{KANJI}]{{1,3}})?|{'|'.join(sorted(set(_GIVEN_JA), key=len, reverse=True))}|[{KANJI}]{{1,2}}(?:太郎|之介|之助|[介輔也斗哉彦香奈菜緒織乃])|[{KANJI}]{{2}}子)(?P<role>は|が|も|の|って|によると)"
)
_NO_BARE_JA = {
    "林",
    "森",
    "原",
    "関",
    "明",
    "実",
    "進",
    "学",
    "愛",
    "優",
    "舞",
    "彩",
    "茂",
    "修",
    "豊",
    "仁",
    "司",
    "清",
    "純",
    "葵",
    "樹",
    "湊",
    "蓮",
    "上野",
    "千葉",
    "宮崎",
    "福田",
    "川崎",
    "石川",
    "山口",
    "高田",
    "中野",
    "本間",
    "調味料",
    "玉子",
    "椅子",
    "帽子",
    "障子",
    "餃子",
    "菓子",
    "様子",
    "調子",
    "冊子",
    "未来",
    "学園祭",
}
_OWNER = re.compile(
    r"(?<![\w'])(?:(?:Mrs?|Ms|Miss|Dr|Prof|Sir|Lady)\.? )?(?P<n>[A-Z][a-zà-þ]+)(?: [A-Z][a-zà-þ]+)?'s? (?=(?P<rest>(?:\w+ ){0,2}\w*))"
)
_NAME_ACTS = re.compile(
    rf"(?:^|(?<=[.;:!?,] )|(?<=\bthat )|(?<=\bwhile )|(?<=\bbut )|(?<=\band )|(?<=\bbecause )|(?<=\bwhat )|(?<=\bwhere )|(?<=\bwhich )|(?<=\bwho )|(?<=\bwhen )|(?<=\bhow )|(?<=[a-z] (?=[A-Z])))(?P<n>[A-Z][a-zà-þ]+)(?P<family> [A-Z][a-zà-þ]+)?(?P<more>(?:,| and| &) [A-Z][a-zà-þ]+)?(?:, (?:who|whose|a|an|the|my|our) [^,.;]{{1,50}},)? (?=(?P<v>{_VERB})\b)"
)
_CLAUSE = re.compile(
    r" (?:whenever|when|because|since|if|as|until|before|after|so that) (?=(?:i|we|my|our|i'm)\b)|; |: |\. | but |,? while |,? whereas |,? although |, (?:and |so )?(?=(?:i|we|my|our|i'm|i've|the user|his|her|their)\b)|, which | and (?=(?:i|my|mine)\b(?! (?:and|both)))"
)
# a fact about these is one about a child
_CHILD_PLACES = re.compile(
    r"保育園|幼稚園|こども園|学童|お迎え|\b(?:nursery|kindergarten|daycare|preschool|infants|school run)\b"
)
THEIRS_START = re.compile(r"^(?:his|her|their)(?![a-z])")
PRONOUN_START = re.compile(
    r"^(?:and |but |so )?(?:he|she|his|her|they|their|it's his|it's her)(?:'s|'re|'ve)?(?![a-z])|^(?:彼|彼女|あの子|向こう)(?:の|は|が|も)"
)


def people_in(text: str) -> set[str]:
    """Concepts of the persons that a normalised text names."""
    found = {_WORD_TO_PERSON[m["p"]] for m in _EN_PERSON.finditer(text)}
    if _CHILD_PLACES.search(text):
        found.add("child")
    return found | {_WORD_TO_PERSON[m[0]] for m in re.finditer(_JA_PEOPLE, text)}


def names_of(subject: str | None) -> set[str]:
    """Normalised pieces of a user's name."""
    return (
        {normalise(piece) for piece in re.split(r"[\s・]+", subject) if piece} | {normalise(subject).replace(" ", "")}
        if subject
        else set()
    )


def somebody_owns(sentence: str, known: set[str], subject: str | None = None) -> bool:
    """Whether a sentence is about a person who is neither the user nor `known` (concepts of `people_in`)."""
    return somebody_else(normalise(sentence), sentence, known, (), (), names_of(subject))


def somebody_else(
    text: str,
    raw: str,
    known: set[str],
    anchors: Sequence[str],
    spans: Sequence[tuple[int, int]],
    user: set[str],
    at: int | None = None,
) -> bool:
    """Whether the sentence, at the value that begins at `at` (the first of `spans` unless said), is about a person who
    is not `known`. `text` is normalised, `raw` is not; `spans` are value hits: a person named inside a value ("Aunt
    Mary's Cafe") is part of the value; `user` are the user's names."""
    if len(text) > 2_000:
        text, raw = text[:2_000], raw[:2_000]
    if _NOT_MINE.search(text):
        return True
    at = min((s for s, _ in spans), default=None) if at is None else at
    if re.search("[a-z]{2}", text) and _english(text, raw, known, anchors, spans, user, at):
        return True
    return bool(re.search("[\u3041-\u9fff]", text)) and _japanese(text, known, anchors, spans, user, at)


# --- English ----------------------------------------------------------------------------------------------------


def _english(
    text: str,
    raw: str,
    known: set[str],
    anchors: Sequence[str],
    spans: Sequence[tuple[int, int]],
    user: set[str],
    value: int | None,
) -> bool:
    def inside(start: int, end: int) -> bool:
        return any(s < end and start < e for s, e in spans)

    marked = list(text)  # value hits keep their place: a person becomes '#' and blanks of the same length

    def mark(start: int, end: int, own: bool) -> None:
        filler = "#'s" if own else "#"
        marked[start:end] = list(filler.ljust(end - start, "\0"))

    found = False
    for match in _ELSEWHERE.finditer(text):
        if "neighbour" not in known and "parents" not in known and not inside(*match.span()):
            mark(*match.span(), False)
            found = True
    owners: list[tuple[int, int]] = []
    for match in _PERSON_PHRASE.finditer(text):
        concept = _WORD_TO_PERSON[match["q"]]
        if (
            concept in known
            or inside(*match.span())
            or marked[match.start()] == "\0"
            or _serves(match[0], concept, bool(match["own"]), text, match.start(), match.end(), anchors)
        ):
            continue
        mark(*match.span(), bool(match["own"]))
        found = True
        if match["own"]:
            owners.append(match.span())
    for match in _EN_PERSON.finditer(text):
        concept = _WORD_TO_PERSON[match["p"]]
        if (
            concept in known
            or inside(*match.span())
            or "\0" in marked[match.start() : match.end()]
            or marked[match.start()] == "#"
            or concept in _PROVIDERS
            or concept in ("child", "someone", "employer")
        ):
            continue
        if (
            match["p"] == "partner"
            and not re.search(r"(?:my|his|her|their|our|'s) $", text[: match.start()])
            or match["p"] in ("assistant", "gran", "ex", "trainer", "guest", "baby", "bro", "sis", "twin")
        ):
            continue  # a tennis partner is no partner
        if any(anchor in match[0] for anchor in anchors if len(anchor) > 2):
            continue
        mark(*match.span(), bool(match["own"]))
        found = True
        if match["own"]:
            owners.append(match.span())
    for start, end, own in _names(text, raw, anchors, spans, user):
        if "\0" not in marked[start:end] and "#" not in marked[start:end]:
            mark(start, end, own)
            found = True
            if own:
                owners.append((start, end))
    if not found:
        return False
    # "my brother's birthday is on July 12 and mine on October 2": only persons of the value's own clause count where
    # that clause is the user's
    if value is not None:
        here, stop = next(((a, b) for a, b in _clauses(text) if a <= value < b), (0, len(text)))
        clause = "".join(marked)[here:stop]
        if re.match(r"(?:i|we|my|our|i'm|i've|mine|ours|the user(?:'s)?)\b", clause.lstrip()) and "#" not in clause:
            return False
    for _, end in owners:
        owned = text[end : end + 30]
        if (
            not _ME.search(text[end:])
            and not _ME_ACTS.search("".join(marked[:end]).replace("\0", ""))
            or any(anchor in re.split("[,;.]", owned)[0] for anchor in anchors if len(anchor) > 2)
        ):
            return True
    whole = "".join(marked)
    value_mark = "\1"
    if value is not None and whole[value : value + 1] not in ("#", "\0"):
        whole = whole[:value] + value_mark + whole[value + 1 :]
    if not _THEIR.search(text):
        # what follows is no more theirs than mine
        whole = re.sub(
            r"#\0* (?:reminded|warned|informed|let|assured|notified) (?:me|us|the user)(?: know)? that ", " ", whole
        )
    rest = _ASIDE.sub(" ", whole.replace("\0", ""))
    rest = _OPENING.sub("", re.sub(" +", " ", rest).strip())
    names = "|".join(re.escape(n) for n in sorted(user) if n.isascii())
    mine = bool(_ME.search(rest)) or bool(names and re.search(rf"(?<![a-z])(?:{names})(?![a-z])", rest))
    if not mine and (owners or _PERSON_SUBJECT.search(rest) or _OF_PERSON.search(rest)):
        return True
    own_clause = next((c for c in _CLAUSE.split(rest) if value_mark in c), "").lstrip()
    if re.match(r"#(?!'s)(?! (?:and|&|or)\b) [a-z]", own_clause) and not _ME.search(own_clause):
        return True
    subject = re.match(
        r"^(?:(?:on|every|each|in|at|from|for|these|this|once|twice)\b[^,#]{0,30}, ?)?#(?!(?: \x01?[a-zà-ÿ]+)? (?:and|&|or) (?:i|me|my|the user)\b)",
        rest,
    )
    if subject:
        clauses = _CLAUSE.split(rest)
        here = next((c for c in clauses if value_mark in c), clauses[0])
        if here is not clauses[0] and re.search(r"^(?:i|we|my|our|i'm|i've|mine|the user)\b", here):
            return False
        if names and re.search(rf"(?<![a-z])(?:{names})(?![a-z])", here) or _ME_ACTS.search(here):
            return False
        before = here.split(value_mark)[0]
        return not _ME_OWNS.search(before) and not any(
            re.search(rf"(?:my|our|user's) (?:\w+ ){{0,2}}{re.escape(anchor)}", rest) for anchor in anchors
        )
    return bool(_THEIR.search(text)) and not re.search(r"(?<![a-z'])(?:i|i'm|i've|my|we|our|user)(?![a-z])", rest)


def _clauses(text: str) -> list[tuple[int, int]]:
    ends = [m.end() for m in _CLAUSE.finditer(text)]
    return list(zip([0, *ends], [*ends, len(text) + 1], strict=True))


def _serves(phrase: str, concept: str, own: bool, text: str, start: int, end: int, anchors: Sequence[str]) -> bool:
    """Whether a person is there for the user in what the fact is about: "my guitar teacher", "the cleaner comes on
    Monday"."""
    if own or re.search(r"\b(?:of|by|belongs to|owned by) $", text[:start]):
        return False
    if any(re.search(rf"(?<![a-z]){re.escape(anchor)}", phrase) for anchor in anchors if len(anchor) > 2):
        return True
    if concept in _PROVIDERS:
        return not re.match(
            r" (?:has|owns|lives|plays|drives|grew|studied|banks|goes|likes|loves|runs|swims|drinks|eats|meditates|commutes|volunteers)\b",
            text[end:],
        )
    return False


def _names(text: str, raw: str, anchors: Sequence[str], spans: Sequence[tuple[int, int]], user: set[str]):
    """(start, end, owns something) in `text` of names of unknown persons."""

    def unknown(name: str, sure: bool) -> bool:
        return (
            name not in user
            and name not in _WORD_TO_PERSON
            and not any(name in text[s:e] or text[s:e] in name for s, e in spans)
            and not any(name.startswith(anchor) or anchor.startswith(name) for anchor in anchors)
            and (sure or name in GIVEN_NAMES or name not in _NO_NAME and not name.endswith("ing"))
            and name not in _NO_NAME - GIVEN_NAMES
        )

    for match in _OWNER.finditer(raw):
        if match[0].rstrip().endswith("'s") and unknown(match["n"].lower(), match.start() > 2):
            start = text.find(normalise(match[0]).rstrip())
            if start >= 0:
                yield start, start + len(normalise(match[0]).rstrip()), True
    for match in [*_BELONGS.finditer(raw), *_SHE.finditer(raw)]:
        piece = normalise(match["n"])
        start = text.find(piece)
        if unknown(piece, True) and start >= 0:
            yield start, start + len(piece), False
    for match in _NAME_ACTS.finditer(raw):
        name = match["n"].lower()
        if unknown(name, False) and not (match["family"] and not unknown(match["family"].strip().lower(), False)):
            piece = normalise(match[0])
            start = text.find(piece)
            if start >= 0 and not any(s < start + len(piece) and start < e for s, e in spans):
                yield start, start + len(piece), False


_BELONGS = re.compile(
    r"\b(?:belongs? to|owned by|property of) (?P<who>(?:(?:Mrs?|Ms|Miss|Dr)\.? )?(?P<n>[A-Z][a-zà-þ]+))"
)
_SHE = re.compile(r"(?<=[a-z] )(?P<n>[A-Z][a-zà-þ]+)(?=, (?:who|he|she)(?:'s)? )")


# --- Japanese ---------------------------------------------------------------------------------------------------


def _japanese(
    text: str, known: set[str], anchors: Sequence[str], spans: Sequence[tuple[int, int]], user: set[str], at: int | None
) -> bool:
    quoted = (
        [
            m.span()
            for m in re.finditer("「[^「」]*」", text)
            if not any(m.start() < e and s < m.end() for s, e in spans)
        ]
        if spans
        else []
    )

    def inside(match: re.Match) -> bool:
        # whom somebody speaks of owns nothing here
        return any(s < match.end() and match.start() < e for s, e in [*spans, *quoted])

    pets = any(a in ("犬", "猫", "ペット", "愛犬", "愛猫") for a in anchors)
    mentions: list[tuple[int, int, str]] = []
    for match in _JA_PERSON.finditer(text):
        concept = _WORD_TO_PERSON[match["p"]]
        if (
            concept in known
            or inside(match)
            or concept in _PROVIDERS
            or match["p"] in ("先生", "客", "親", "バイト", "受付")
            and match["role"] not in ("の", "は")
            or match["p"] == "うちの子"
            and pets
        ):
            continue
        if (
            match["p"] == "親"
            and re.match("子|切|友|戚|指|身", text[match.end("p") :])
            or match["p"] in ("おば", "おじ")
            and re.match("け", text[match.end("p") :])
        ):
            continue
        if match["role"] == "の" and _NO_OWNING_JA.match(text[match.end() :]):
            continue
        if match["p"] in ("彼", "彼女") and user and match.start() == 0 and not spans:
            continue
        mentions.append((match.start(), match.end(), match["role"]))
    if "neighbour" not in known and "parents" not in known:
        # without a fact in hand, where the parents live may be what is asked
        mentions += [
            (m.start(), m.end(), "は")
            for m in _ELSEWHERE_JA.finditer(text)
            if not inside(m)
            and not any(a.startswith("実家") for a in anchors)
            and (spans or not re.match("実家[^の]", m[0]))
        ]
        for match in _PET_NEAR_JA.finditer(text):
            if any(s <= match.end("x") < e or match["x"] in text[s:e] for s, e in spans) or any(
                match["x"] == a for a in anchors
            ):
                mentions.append((match.start(), match.end(), "は"))
    for match in _CLEFT_JA.finditer(text):
        if _WORD_TO_PERSON[match["p"]] not in known and not inside(match):
            return True  # 囲碁を習っているのは父だ
    for match in _HONORIFIC.finditer(text):
        name = match["n"]
        if match["full"] in _WORD_TO_PERSON:
            continue  # おじいちゃん is a person of the first list
        if (
            not inside(match)
            and not any(name in one or one in name for one in user)
            and name not in _WORD_TO_PERSON
            and name not in _NO_HONORIFIC
            and not any(name in a for a in anchors)
        ):
            mentions.append((match.start(), match.end(), match["role"]))
    for match in _BARE_NAME_JA.finditer(text):
        name = match["n"]
        if (
            not any(s < match.end("n") and match.start("n") < e for s, e in spans)
            and name not in _NO_BARE_JA
            and not any(name in one or one in name for one in user)
            and not any(name in a or a in name for a in anchors)
        ):
            mentions.append((match.start("n"), match.end(), match["role"]))
    if not mentions:
        return False
    plain = re.sub(
        r"(?:私|僕|俺|うち|わたし|自分|ユーザー)の(?=[^、。]{0,4}?(?:" + _JA_PEOPLE + "))",
        lambda m: "＿" * len(m[0]),
        text,
    )
    mine = [m.start() for m in _ME_JA.finditer(plain)]
    for start, end, role in mentions:
        clause = re.split("[。]|が、|けど、|けれど、", plain[end:])[0]
        favour = _FAVOUR.search(clause)
        if (
            favour
            and not _HEARSAY.search(clause[favour.end() + 6 :])
            and role != "の"
            or favour
            and re.match("紹介|勧め|すすめ|誘", favour[0])
            and role == "の"
        ):
            continue
        if not spans:
            if not mine:
                return True
            continue
        if (
            role == "の"
            and not any(end <= a < at for a in mine)
            and any(
                anchor in text[end : end + len(anchor) + 6]
                for anchor in anchors
                if len(anchor) > 1 or anchor in "犬猫薬"
            )
        ):
            return True  # 母の誕生日, whoever told it
        if start < at:
            topic = max((a for a in mine if a < at), default=None)
            if topic is None or topic < start and re.search("が、|けど、|けれど、|し、|。", plain[topic:start]):
                return True  # a topic of the user before it stays the sentence's topic; one after it takes over
        elif not mine and not _NEXT_CLAUSE_JA.search(text[at:start]):
            return True
    return False
