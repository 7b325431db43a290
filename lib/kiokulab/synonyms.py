"""Other words for the same thing: what a fact is about (`kin`), and phrases worded in another way (`variants`).

Datasets give each fact some words for its topic and some forms of its values; stores use many more. The groups here are
everyday synonyms by field of life, English and Japanese together, written once for all slots. A group only widens what
counts as being about a fact: a value must still be there, and its owner and its role are judged as ever.
"""

from __future__ import annotations

import functools
import re

# words of one topic; a fact whose anchors hold one of the first words (before the bar) is also known by those after it
_KIN = [
    "alarm 起き 起床 目覚まし アラーム wake waking|wake woken waking get out of bed gets out of bed up at rise rises 目を覚ま 目が覚め 目覚め 起こし 布団から",
    "author 作家|writer novelist writes wrote novels 書き手 著者 小説",
    "bank 銀行|bank banking account money sits 口座 取引銀行 メインバンク 預金",
    "bins garbage ゴミ 燃えるゴミ 可燃ゴミ|bin waste trash garbage rubbish collected collection kerb curb ゴミ ごみ 収集 可燃",
    "book club 読書会|reading group book circle discuss 読書サークル 本の会 課題本",
    "breakfast 朝食|breakfast in the morning mornings start the day start my day 朝ごはん 朝ご飯 朝飯 朝は",
    "car 車|drive drives driving registration number plate licence plate license plate 愛車 ナンバー マイカー",
    "cat 猫|cat kitty kitten feline ニャンコ にゃんこ 飼い猫 愛猫",
    "dog 犬|dog pup puppy pooch doggy hound ワンコ わんこ 愛犬 飼い犬",
    "donate 寄付|donate donation charity gives goes to standing order 寄附 募金",
    "choir 合唱|choir sing sings singing rehearse rehearsal choral 合唱団 コーラス",
    "cleaner|clean cleans cleaning 掃除 清掃",
    "coffee コーヒー|coffee espresso cafe barista 珈琲 カフェ",
    "commute 通勤|commute get to work gets to work getting to work to the office to work way to work 出勤 会社まで 職場まで 会社に通 会社へ 通って",
    "daughter 娘|daughter girl pupil 娘",
    "studied 専攻|degree graduated major majored studied university 大学で 学部 専攻",
    "dentist 歯医者|dentist dental teeth tooth 歯科 歯の 虫歯 デンタル",
    "gp family doctor かかりつけ|doctor gp registered with when i'm ill 主治医 診てもら 掛かりつけ ホームドクター",
    "allergic allergy アレルギー|allergy allergic hives reaction rash 蕁麻疹 じんましん 体質 アレルギー反応 受けつけ 受け付け",
    "dislike 苦手|dislike can't stand hates detest won't eat 嫌い 口にでき 食べられ 苦手 だめ 受けつけ",
    "guitar ギター|guitar ギター",
    "haircut hairdresser 美容院|haircut hairdresser barber stylist cuts my hair cut my hair cuts the user's hair hair trim 髪を 髪は カット 美容室 ヘアサロン 散髪",
    "holiday 旅行|holiday vacation trip travel travelling getaway break fly flying 旅 旅行 出かけ",
    "insurance 保険|insurance insured insures insurer policy premium cover covers 保険料 生命保険",
    "work for job 部署 所属|job employer employed employment hired role position works work for working at occupation profession 勤め 勤務 職場 働いて 仕事 配属 所属 部署",
    "evening class language class|evening class evening school night school 語学",
    "laptop パソコン|laptop computer notebook type on ノートpc パソコン",
    "manager|manager boss report to reports to line manager supervisor 上司",
    "tablet 薬|medicine medication pill pills tablet dose swallow take takes 服用 飲み薬 飲んで",
    "meditate 瞑想|meditate meditation mindfulness 瞑想 マインドフルネス",
    "birthday 誕生日|birthday born birth turn a year older came into the world bday 誕生日 生まれ 生誕 バースデー",
    "anniversary 結婚記念日|anniversary married wed wedding 結婚記念日 入籍 結婚",
    "parking 駐車場|park parks parking bay leave my car space 駐車 停め 車を 区画",
    "partner|partner spouse other half better half girlfriend boyfriend together with 連れ合い パートナー",
    "phone plan スマホ 携帯|phone mobile sim cell data plan contract gb スマホ 携帯 ギガ 通信 データ容量 キャリア",
    "physio|physio physiotherapist physiotherapy treats my back 理学療法 リハビリ",
    "podcast|podcast listen listens episode ポッドキャスト",
    "pottery 陶芸|pottery pots throwing pots wheel ceramics clay 陶芸 ろくろ",
    "project プロジェクト|project deadline due プロジェクト 締め切り 締切",
    "race marathon マラソン|race marathon training sign up signed up run running マラソン 大会 レース 完走 エントリー",
    "rent 家賃|rent landlord lease tenancy pay for the flat for my flat for the apartment 家賃 部屋代 賃料 大家 住んで",
    "restaurant|restaurant eat eating dine dinner food place to eat レストラン 食事",
    "行きつけ|regular usual bar pub izakaya hangout 飲み屋 居酒屋 よく行く 通って 常連 馴染み いつもの",
    "run running|run runs running jog jogging jogger ランニング ジョギング 走",
    "savings saving 積立 貯金|save saves saving savings put aside set aside fund goes into piggy bank 貯め 貯金 貯蓄 積み立て 積立",
    "storage unit|storage locker lock-up unlock opens key in 倉庫 トランクルーム",
    "暗証番号 宅配ボックス|pin passcode code locker parcel box delivery box 暗証番号 宅配 ロッカー 開け 開く",
    "swim 水泳|swim swims swimming pool laps lengths スイミング プール 泳 水泳",
    "tea お茶|tea brew cup of mug of お茶 紅茶 ティー",
    "tennis テニス|tennis court テニス",
    "volunteer ボランティア|volunteer volunteering unpaid helping out help out shift ボランティア 手伝い 奉仕 参加",
    "ベランダ|balcony pots ベランダ バルコニー 鉢",
    "球団 野球|baseball team fan supports ファン 応援 球団 野球 推し",
    "お弁当 弁当|bento lunch box lunchbox packed lunch 弁当",
    "自転車|bicycle bike cycle cycles ride rides 自転車 チャリ 乗って",
    "車検|inspection shaken mot 車検",
    "健康診断|checkup health check medical physical examination 健診 健康診断 人間ドック 検診",
    "町内会|neighbourhood association residents 町内 自治会",
    "部活|club high school drama team 部に 部員 部活 高校 入って",
    "コーヒー豆|beans coffee roast grind 豆 コーヒー 珈琲",
    "緊急連絡先|emergency contact in case of emergency 緊急 何かあった もしものとき 連絡先",
    "生協|co-op coop groceries delivery 生協 コープ 宅配",
    "カレー|curry カレー ルー",
    "晩酌 焼酎|shochu nightcap evening drink drink 晩酌 焼酎 夜は 飲む 飲んで",
    "試験 資格|exam test certification licence qualification 試験 受験 資格 検定 受ける 勉強",
    "お墓参り|grave graves cemetery 墓",
    "ジム|gym fitness workout works out ジム 筋トレ トレーニング フィットネス",
    "実家|parents' home family home hometown from 実家 生まれ育っ 出身 地元 故郷",
    "grew up hometown|grew up raised childhood hometown born and bred 育っ 出身 故郷 地元",
    "live on address|live lives living address flat house home move moved 住 引っ越",
    "楽器|instrument play plays practise practice practising practicing 楽器 弾 練習 演奏 吹",
    "習い事|lesson lessons class classes hobby learn learns learning 習 教室 稽古 レッスン",
    "お迎え 保育園|pick up picks up pickup collect nursery daycare 迎え 保育園 園に",
    "温泉|hot spring hot springs onsen spa 温泉 湯 湯治",
    "推し|idol favourite fan oshi 推し ファン 応援",
    "ペット|pet pets 飼",
    "ラジオ|radio listen listens programme program show ラジオ 番組 聴",
    "在宅勤務|home remote telework remotely 在宅 テレワーク リモート 家で働 家で仕事",
    "靴|shoe shoes feet size 靴 足のサイズ",
    "最寄り駅 最寄り|station nearest closest walk 駅まで 駅から 最寄 徒歩 歩いて",
    "動画配信|streaming subscription watch video サブスク 配信 動画 映画 見放題",
    "ふるさと納税|furusato hometown tax 返礼品 寄付 納税",
    "体重|weight weigh target goal 体重 減量 ダイエット",
    "houseplant|plant houseplant potted 観葉植物 鉢植え 植物",
]

# words that stand for each other inside a value
_SAME = [
    "昼食 昼ごはん 昼ご飯 お昼ごはん お昼ご飯 昼飯 ランチ お昼",
    "朝食 朝ごはん 朝ご飯 朝飯",
    "夕食 夕飯 晩ごはん 晩ご飯 夕ごはん 夕ご飯 夜ごはん ディナー 晩飯",
    "のあと の後 後 のあとに 食後",
    "の前 前 のまえ まえ",
    "寝る 就寝 寝",
    "の頃 のころ の時期 の季節 どき の時分",
    "梅雨どき 梅雨の頃 梅雨の時期 梅雨時",
    "落花生 ピーナッツ ピーナツ",
    "エビ 海老 えび",
    "カニ 蟹 かに",
    "卵 玉子 たまご タマゴ",
    "牛乳 ミルク",
    "小麦 コムギ",
    "そば 蕎麦",
    "干しぶどう レーズン",
    "しいたけ 椎茸 シイタケ",
    "納豆 なっとう",
    "ねぎ ネギ 葱",
    "鮭 サケ さけ",
    "鯖 サバ さば",
    "胡麻 ごま ゴマ",
    "林檎 りんご リンゴ",
    "桃 もも モモ",
    "蜜柑 みかん ミカン",
    "醤油 しょうゆ しょう油",
    "味噌 みそ ミソ",
    "ヨーグルト ヨーグル",
    "珈琲 コーヒー",
    "お茶 緑茶",
    "ソファ ソファー",
    "アコースティックギター アコギ",
    "ピアノ ピアノ",
    "バイオリン ヴァイオリン",
    "自転車 チャリ",
    "電動アシスト車 電動アシスト自転車 電動自転車",
    "シティサイクル ママチャリ",
    "スマートフォン スマホ",
    "パソコン pc",
    "マンション マンション",
    "資金 資金 ため",
    "老後の資金 老後資金 老後のため",
    "友達 友人 友だち",
    "仲間 友人たち",
    "先生 先生方",
    "窓際 窓際の席 窓側",
    "カウンター カウンター席",
    "テラス席 テラス",
    "奥の座敷 座敷",
    "和室 畳の部屋",
    "リビング 居間",
    "台所 キッチン",
    "ベランダ バルコニー",
    "書斎 ワークスペース",
    "図書館 ライブラリー",
    "公民館 コミュニティセンター",
    "集会所 集会場",
    "花束 ブーケ 花",
    "腕時計 時計",
    "観劇のチケット 観劇チケット 芝居のチケット",
    "合気道 合気",
    "囲碁 碁",
    "将棋 しょうぎ",
    "書道 習字",
    "茶道 お茶のお稽古",
    "華道 生け花 いけばな",
    "英会話 英語",
    "漢検 漢字検定",
    "宅建 宅地建物取引士",
    "簿記 ぼき",
    "aubergine eggplant",
    "courgette zucchini",
    "coriander cilantro",
    "prawn shrimp",
    "prawns shrimps shrimp",
    "peanut groundnut",
    "peanuts groundnuts",
    "porridge oatmeal",
    "yoghurt yogurt",
    "biscuit cookie",
    "crisps chips",
    "grey gray",
    "colour color",
    "centre center",
    "theatre theater",
    "flat apartment",
    "sofa couch",
    "film movie",
    "trousers pants",
    "gym sports hall",
    "nursing nursing studies",
    "ground floor ground-floor",
    "with and a plus",
    "tablet pill",
    "psychology psych",
    "mathematics maths math",
    "tv television",
    "bicycle bike",
    "bus coach",
    "underground tube subway metro",
    "train rail",
]
_GROUPS = [tuple(dict.fromkeys(line.split(" "))) for line in _SAME]
_NUMBERS = dict(
    zip("one two three four five six seven eight nine ten eleven twelve".split(), map(str, range(1, 13)), strict=True)
)
_HIRAGANA, _KATAKANA = (
    {chr(c): chr(c + 0x60) for c in range(0x3041, 0x3097)},
    {chr(c + 0x60): chr(c) for c in range(0x3041, 0x3097)},
)
LIMIT = 40  # variants of one form


_ENGLISH_PHRASES = [
    "wake up",
    "get out of bed",
    "gets out of bed",
    "start the day",
    "start my day",
    "get to work",
    "gets to work",
    "getting to work",
    "to the office",
    "way to work",
    "number plate",
    "licence plate",
    "license plate",
    "reading group",
    "book circle",
    "standing order",
    "when i'm ill",
    "registered with",
    "can't stand",
    "won't eat",
    "cuts my hair",
    "cut my hair",
    "cuts the user's hair",
    "evening school",
    "night school",
    "report to",
    "reports to",
    "line manager",
    "turn a year older",
    "came into the world",
    "other half",
    "better half",
    "data plan",
    "treats my back",
    "throwing pots",
    "place to eat",
    "put aside",
    "set aside",
    "goes into",
    "piggy bank",
    "key in",
    "helping out",
    "help out",
    "packed lunch",
    "lunch box",
    "health check",
    "high school",
    "emergency contact",
    "evening drink",
    "grew up",
    "born and bred",
    "family home",
    "pick up",
    "picks up",
    "hot spring",
    "hot springs",
    "hometown tax",
    "leave my car",
    "for the flat",
    "for my flat",
    "family doctor",
    "phone plan",
    "storage unit",
    "work for",
    "book club",
    "evening class",
    "language class",
    "live on",
    "delivery box",
    "parcel box",
    "money sits",
    "in case of emergency",
    "type on",
    "signed up",
    "sign up",
    "mug of",
    "cup of",
]
_GLUE = frozenset(
    "a an and at for from get gets go goes i i'm in into my of on or out start takes take the to up user's when with writes work works place day way home pay move moved live lives living size walk watch play plays pots opens show team fan regular usual gives cover covers came turn older year world half key food eat help space use cells data "
    "can't won't stand cut cuts back report reports sign signed night number case break together policy contract code money clean training run running due due. shift court wheel party drama physical test brew from family health hot high other better set put aside pick picks listen listens favourite weight target goal".split()
)


@functools.lru_cache(maxsize=4_000)
def kin(anchor: str) -> tuple[str, ...]:
    """Further words for the topic that `anchor` (normalised) names."""
    result: list[str] = []
    for line in _KIN:
        head, words = line.split("|")
        heads = [p for p in _ENGLISH_PHRASES if p in head] + head.split(" ")
        if anchor in heads and anchor not in _GLUE:
            phrases = [p for p in _ENGLISH_PHRASES if f" {p} " in f" {words} "]
            result += phrases + [
                w
                for w in words.split(" ")
                if w not in _GLUE and not any(w in p.split(" ") for p in phrases) or not w.isascii()
            ]
    return tuple(dict.fromkeys(result))


def variants(form: str) -> list[str]:
    """Other wordings of a normalised phrase: synonyms, の put in or left out, kana for kana, digits for number words,
    "gym of the school" for "school gym"."""
    found: dict[str, None] = {}

    def add(text: str) -> None:
        if text != form and len(text) > 1 and len(found) < LIMIT:
            found.setdefault(text)

    japanese = bool(re.search("[\u3041-\u30fe\u4e00-\u9fff]", form))
    _replaced(form, japanese, add)
    for other in list(found)[:8]:
        _replaced(other, japanese, add)  # two words of a phrase may be worded differently: ランチの後
    if japanese:
        _japanese_variants(form, add)
    else:
        _english_variants(form, add)
    return list(found)


def _replaced(form: str, japanese: bool, add) -> None:
    for group in _GROUPS:
        for word in group:
            if (
                japanese != word.isascii()
                and (word in form if japanese else re.search(rf"(?<![a-z]){word}(?![a-z])", form))
                and (len(word) > 1 or form.endswith(word) and len(form) > 2)
            ):
                for other in group:
                    add(form.replace(word, other) if japanese else re.sub(rf"(?<![a-z]){word}(?![a-z])", other, form))
                break


def _japanese_variants(form: str, add) -> None:
    if "の" in form[1:-1]:
        add(form.replace("の", ""))
    bare = re.sub('[「」『』“”"]', "", form)
    if bare != form and len(bare) > 3:
        add(bare)
    if 5 <= len(bare) <= 14 and "の" not in bare:
        for i in range(2, len(bare) - 1):
            before, after = bare[i - 1], bare[i]
            if (
                after != "ー"
                and before not in "っッん"
                and not ("\u3041" <= after <= "\u309f")
                and not ("\u30a1" <= before <= "\u30fe" and "\u30a1" <= after <= "\u30fe")
            ):
                add(f"{bare[:i]}の{bare[i:]}")
    if len(form) >= 3 and all(c in _HIRAGANA or c == "ー" for c in form):
        add("".join(_HIRAGANA.get(c, c) for c in form))
    if len(form) >= 3 and all(c in _KATAKANA or c == "ー" for c in form) and "ー" not in form:
        add("".join(_KATAKANA.get(c, c) for c in form))


def _english_variants(form: str, add) -> None:
    words = form.split(" ")
    for i, word in enumerate(words):
        if word in _NUMBERS and len(words) > 1:
            add(" ".join([*words[:i], _NUMBERS[word], *words[i + 1 :]]))
    if words[0] == "two" and len(words) > 1:
        add(" ".join(["a pair of", *words[1:]]))
        add(" ".join(["a couple of", *words[1:]]))
    if words[0] in ("the", "a", "an") and len(words) > 1:
        add(" ".join(words[1:]))
        words = words[1:]
    if len(words) == 2 and all(len(w) > 2 for w in words):
        a, b = words
        for text in (
            f"{b} of the {a}",
            f"{b} of a {a}",
            f"{b} at the {a}",
            f"{b} in the {a}",
            f"{a}'s {b}",
            f"{a}-{b}",
        ):
            add(text)
    if form.count(" with ") == 1:
        x, y = form.split(" with ")
        y = re.sub(r"^an? ", "", y)
        for text in (
            f"{x} and {y}",
            f"{x}, {y}",
            f"{x} ({y})",
            f"{x} plus {y}",
            f"{x} made with {y}",
            f"{x} with {y}",
            f"{y} in it",
            f"{x} + {y}",
            f"{y} in my {x}",
            f"{y} and {x}",
            f"{x} w/ {y}",
            f"{y} {x}",
        ):
            add(text)
    if form.count(" and ") == 1:
        x, y = form.split(" and ")
        for text in (f"{y} and {x}", f"{x} & {y}", f"{x}, {y}", f"{x} + {y}"):
            add(text)
    last = words[-1]
    if last.endswith("ies") and len(last) > 5:
        add(form[:-3] + "y")
    elif last.endswith("oes") and len(last) > 5:
        add(form[:-2])
    elif last.endswith("s") and not last.endswith(("ss", "us", "is")) and len(last) > 5 and "'" not in last:
        add(form[:-1])
