"""Words that say what becomes of a value in a sentence: it is asked to be forgotten, denied, ended, replaced, past, or
unreal.

Every list is a class of words, English first, Japanese after it, written from grammar books' headings (ending,
cancelling, leaving, giving away, changing, planning), not from the sentences of any store. All patterns work on
normalised text; those named *_BEFORE are matched against the text before a value, those named *_AFTER against the text
that follows it.
"""

from __future__ import annotations

import re

# --- forgetting -------------------------------------------------------------------------------------------------

FORGET = re.compile(
    r"(?<!before i )(?<!n't )(?<!never )(?<!i )(?<!not )\b(?:forget)\b|\b(?:delete|erase|remove|wipe|scrub|unlearn)\b|\b(?:don't|do not|needn't|no need to|stop|shouldn't|should not|no longer need to) (?:have to |need to |want you to )?(?:remember|remembering|keep|store|storing|hold on to)|"
    r"\basked (?:me |you |us )?to forget|\bbe forgotten\b|忘れ(?!られ)|消し(?!ゴム)|消去|削除|覚え(?:て(?:い|お)?(?:か)?な|な)|記憶から|なかったことに"
)

ASKS = re.compile(r"\?[\"'」』)]*$|(?:か|かな|かね|っけ|でしょう|だろう|の)[。…]*$")

# --- time and change --------------------------------------------------------------------------------------------

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_UNTIL = rf"until (?:recently|last|this|{_MONTHS}|20\d\d|the|a)"
PAST = re.compile(
    rf"\b(?:used to|previously|formerly|former|originally|once (?:lived|worked|had|owned|was)|before (?:that|then|this|the change)|in the past|back then|had been|at first|old (?:version|value|time|address|one|name|entry)|"
    rf"previous(?: \w+)?|prior(?: \w+)?|old(?=:)|as a child(?! who)|when i was|before (?:we|i|they) (?!forget)\w+|earlier version|history|{_UNTIL}|up until|years ago|in those days|was once)\b|"
    r"以前(?!から|より)|(?<![一二三四五六七八九十0-9年月日時間分週目の名午数手建人直食])前は|かつて|もともと|元々|元は|昔(?!から)|これまで(?:は|の|ずっと)?|今まで(?:は|の)|(?:去年|昨年|先月|先週|昨日|最近)まで|ついこの間まで|当初|変更前|旧(?!姓)"
)
PAST_AFTER = re.compile(
    rf"^[^.;。]{{0,40}}?\b(?:{_UNTIL}|until (?:i|we|he|she|they)|before (?:that|moving|switching|i|the change)|in the past|at first|back then|previously|originally|as a child|when i was|years ago)\b|"
    r"^[^、。]{0,12}?(?:だった(?:頃|時期|時代|が、|けど)|(?:て|で)い?(?:た(?!だ)|まし)(?:が|けど|頃|時期|の|こと)|た頃)"
)
# "my shoulder's bad, fell off a ladder when I was 22": the past is the next clause's, where the value's own is in the
# present
PRESENT_CLAUSE = re.compile(r"^[^,.;]{0,30}?(?:\b(?:is|are|am|has|have)\b|[a-z]'s (?!been\b|got\b))[^,.;]{0,20},")
PRESENT_VERB = re.compile(
    r"\b(?:i|we|i'm|we're|user) (?:live|work|go|have|drive|play|swim|use|lives|works|goes|has|drives|plays|swims|uses|still \w+|living|working)\b"
)
PAST_VERB = re.compile(r"\b(?:lived|worked|had|was|were|went|stayed|used|kept|did|came|[a-z]{3,}ed)\b")
WAS = re.compile(r"\b(?:was|were)\b")
WAS_NEXT = re.compile(r"(?<!\bi )\bwas (?:at |on |in |called |named )?$")
WAS_AFTER = re.compile(r"^[^、。]{0,12}?(?:だった(?!の[をが])|でした|(?:て|で)い(?:た(?!だ)|ました))")
_NOW = re.compile(
    r"\b(?:now|currently|these days|nowadays|since then|at present)\b|今は|いまは|現在|これから|今では|今の"
)
_NOT_NOW = re.compile(
    r"(?:n't|\bnot|\bno more|\bno longer|\bnone) [^,;.]{0,40}?\b(?:now|currently|these days|nowadays|at present)\b|(?:今は|いまは|現在は?|今では)[^。、]{0,20}(?:ない|ません|やめ|辞め)"
)


def says_now(text: str) -> bool:
    """Whether a text says how things are now; "isn't ... now" says how they are not."""
    return bool(_NOW.search(_NOT_NOW.sub(" ", text)))


CHANGE_VERB = re.compile(
    r"\b(?:mov(?:e|ed|ing)|chang(?:e|ed|ing|es)|switch(?:ed|ing)?|shift(?:ed)?|went|go(?:es|ing)?|push(?:ed|ing)|put (?:back|forward|off)|bumped|brought|reschedul\w+|updat\w+|swapp?\w*|renam\w+|rais\w+|increas\w+|decreas\w+|reset|dropp?\w*|cut|up|down|transferr\w+|convert\w+|traded|"
    r"extend\w+|shorten\w+|lengthen\w+|lower\w+|grew|jump\w+|slid|revis\w+|amend\w+|correct\w+|replac\w+|adjust\w+)\b|変|移|ずら|替|換|代わ|引っ越|切り替|改|伸|延|減|増|上が|下が|上げ|下げ|早|遅|更新|値上|値下|縮|落と|なっ|なり|した|しま"
)
_MOVES = (
    "moved|moving|switched|switching|changed|changing|came|shifted|migrated|transferred|pushed|bumped|converted|went"
)
MOVED_BEFORE = re.compile(rf"\b(?:{_MOVES}|replac(?:ed|es|ing))\b[^;]*$")
JAPANESE_MOVE = re.compile(
    r"^[^、。]{0,4}から[^、。]{1,24}?(?:に|へ)(?:[^、。]{0,8}?)(?:変|移|替|換|代わ|引っ越|引越|乗り換|鞍替え|切り替|改|転|更新|なっ|なり|し(?:た|まし))"
)
_GAP = r"(?: (?!(?:but|now|because|that|since|then|and|so|without|→|->)\b)[^ ,;:()]+)"

# --- replaced ---------------------------------------------------------------------------------------------------

REPLACED_BEFORE = re.compile(
    rf"\b(?:{_MOVES})(?: [^ ,;:()]+){{0,3}}? (?:away |over |back |out )?(?:from|out of)(?: (?!(?:to|into|→|->)\b)[^ ,;:()]+){{0,3}} ?$|"
    r"\b(?:replac(?:ed|es|ing)|swapp(?:ed|ing)|traded(?: in)?|exchang(?:ed|ing))(?: (?!(?:with|by|for|on|in|inside|at|to)\b)[^ ,;:()]+){0,5} ?$|"
    r"\b(?:instead of|rather than|in (?:exchange|return) for|in place of|as opposed to|takes? over from|took over from|taking over from|gone off)(?: [^ ,;:()]+){0,4} ?$"
)
REPLACED_AFTER = re.compile(r"^[^、。]{0,8}?(?:の代わりに|に代わって|に代わり|にかわって|の後任|の後釜|に替えて)")

# --- denied -----------------------------------------------------------------------------------------------------

NOT_BEFORE = re.compile(
    rf"(?:\bno longer|\bnot\b(?! only| just| sure| bad| far| long| to mention| forget| miss| skip| fail)|(?<!\bca)n't\b(?! (?:forget|wait|believe|mind|miss|stop|plan|book|schedule|call|disturb|expect|know|think|have to)\b)|\b(?:cannot|can't)\b(?! (?:wait|stop|do without|live without|get enough|imagine|resist|help|start))|"
    rf"\b(?:is|'s|has|have|had|are) no\b(?! (?:place|one|other|better)\b)|\bden(?:y|ies|ied)\b|\bneither|\bnor\b|\bnever\b(?! miss| forget| mind| skip| without| late| fail)|\bno more){_GAP}{{0,7}} ?$|"
    r"(?:もう|もはや)[^。、]{0,3}$(?P<already>)"
)
ALREADY_NOT = re.compile(r"^[^、。]{0,14}(?:ない|ません|なくな|なかった|やめ|辞め)")
NOT_AFTER = re.compile(
    r"^ (?:isn't|is not|aren't|wasn't|was never|doesn't|does not|won't|is never|can't|cannot|hasn't)\b(?! only| just)|^(?:'s)?(?: (?!but|and|now)[^ ,;:.()]+){0,6}? ?\b(?:anymore|any more|any longer|no longer|no more|is outdated|is out of date|(?:is|was) (?:wrong|incorrect))\b|"
    r"^[^、。]{0,6}?(?:(?:で|じゃ)は?(?:もう)?な(?:い|く|かっ)|では?ありません|じゃありません|じゃなく|はなし(?:$|。)|は誤り|は間違い|は違う|はもう[^、。]{0,8}(?:ない|ません|やめ|なくな)|"
    r"に?は?もう?(?:行か|通わ|住ま|使わ|飲ま|食べ|乗ら|し|入れ|受け|買わ|聴か|見)(?:なくな|ない|ません)|(?:行っ|通っ|住ん|使っ|飲ん|食べ|乗っ|し)(?:て|で)い?(?:ない|ません|なくな))"
)
# said of the whole sentence
DENIED = re.compile(
    r"\b(?:not true|untrue|isn't true|is false|incorrect(?:ly)?|by mistake|mistaken(?:ly)?|denie[sd]|denying|no longer|any ?more|any longer|has ended|have ended|came to an end|called off|stopped \w+ing|"
    r"(?:has|have|had) (?:quit|cancelled)|got rid of|never (?:had|did|was|has|have|been|owned|lived|worked)|split up|broke(?:n)? up|parted ways|got divorced|(?:is|are) gone|(?:has|have) died|passed away|but (?:didn't|don't|never did|decided not to))\b|嘘だ|デマ|事実ではな|誤解"
)
# a Japanese sentence is denied by its end; endings that only look like a denial are not
_NO_DENIAL = "かもしれ なければなら いけ 間違い 変わら 忘れ 欠かさ すぎ しか たまら 少 欠かせ 外せ 手放せ やめられ 止められ 足り 間違いあり 変わり たま 申し訳 かけがえの 危 間に合わ たりと ほか".split()
_UNLESS = "".join(f"(?<!{word})" for word in _NO_DENIAL)
_TAIL = r"(?:よ|ね|です|でしょう|んだ|んです|のです|と思う|と思います|とのこと|という|そうだ|そうです|らしい|みたい|ようだ|と(?:言|話|聞)[^。]{0,6}|(?:こと|よう)(?:に(?:した|しました|する|します|なった|なりました|している|しています)|だ|です)|つもり(?:だ|です)?|予定(?:だ|です)?|ので|から|わけ)*"
DENIED_END = re.compile(
    rf"(?:{_UNLESS}(?:ない|ません)|(?<!欠か)(?<!忘れ)(?<!変わら)(?:ておらず|ていません|なくなった|なくなりました|なくなって(?:いる|います|しまった|しまいました)|なかった|ませんでした|ずにいる)){_TAIL}[。!、]?$"
)

# --- ended ------------------------------------------------------------------------------------------------------

_LEAD = r"(?<!never )(?<!n't )(?<!not )(?<!yet to )(?<!before )(?<!n't yet )"
ENDED_BEFORE = re.compile(
    rf"{_LEAD}\b(?:stopped|quit|quitting|ditched|scrapped|axed|binned|abandoned|dropped|dumped|sold|left|lost|cancell?ed|terminated|discontinued|unsubscribed from|resigned from|retired from|withdr(?:ew|awn) from|"
    rf"backed out of|pulled out of|dropped out of|opted out of|checked out of|moved out of|moved away from|walked away from|stepped (?:down|back|away) (?:from|as)|stood down (?:from|as)|done with|got rid of|get rid of|getting rid of|got shot of|gotten rid of|"
    rf"giv(?:en|ing) up(?: on)?|gave up(?: on)?|gave away|given away|gave back|handed (?:back|over|in)|handed in (?:my|the) notice (?:at|with|to)|returned|rehomed|donated away|threw (?:out|away)|thrown (?:out|away)|"
    rf"packed in|jacked in|kicked|swor(?:e|n) off|cut out|weaned (?:myself )?off|came off|coming off|come off|(?:took|taken|take) (?:me|us|the user) off|went off|gone off|fell out of love with|fallen out of love with|moved on from|outgrew|outgrown|grew out of|grown out of|"
    rf"broke up with|broken up with|split (?:up )?(?:from|with)|parted (?:ways )?(?:with|from)|divorced|separated from|clos(?:ed|ing) (?:down )?(?:my|our|the|that|his|her|their) (?:\w+ )?(?:account|policy|contract|plan)(?: at| with)?|"
    rf"finished (?:with|at)|fired from|sacked from|laid off (?:from|by)|let go (?:from|by)|made redundant (?:at|by|from)|dismissed from|expelled from|evicted from|kicked out of|thrown out of|banned from|"
    rf"(?:switched|turned|shut) off|disabled|deactivated|(?:had|have|decided|chose|was forced|were forced|agreed) to (?:cancel|stop|quit|drop|leave|sell|give up|end|resign(?: from)?|abandon|scrap|return|close|call off)|wound up|wrapped up|let go of|rejected|turned down|skipped out on|deleted|uninstalled|traded in|wrote off|written off|crashed|can't stand|cannot stand|have no more|no more|free of|cured of|recovered from|over my)(?: (?!(?:but|now|because|that|since|then|and|so|without|for|→|->)\b)[^ ,;:()]+){{0,8}} ?$"
)
PARTED_BEFORE = re.compile(rf"{_LEAD}\b(?:gave|given|giving|threw|thrown|handed|sent){_GAP}{{0,5}} ?$")
PARTED_AFTER = re.compile(r"^(?: [^ ,;:()]+){0,2} (?:away|back|up|out)(?= |,|[.;]|$)(?! (?:for|at|as) )")
CANNOT_HAVE = re.compile(
    r"(?:can't|cannot|can not|never|don't|doesn't|do not|does not|won't|mustn't|not able to|not allowed to|n't able to)(?: even| really| ever)? (?:eat|have|stand|touch|tolerate|drink|bear|stomach|go near|like)\b|"
    r"(?:食べ|飲め|飲ま|食べら|受けつけ|受け付け|口にでき|口に入れられ|口に入れ|喉を通ら|触れ|触ら|たべ|だめ)[^。、]{0,4}(?:ない|ません)|好きでは?な|好きじゃな|好きになれ"
)
_OVER = (
    r"(?:scrapped|cancell?ed|called off|axed|dropped|discontinued|abandoned|abolished|terminated|shelved|ditched|sold|stolen|rehomed|given (?:up|away|back)|disbanded|dissolved|closed(?: down)?|shut(?: down)?|withdrawn|deactivated|disabled|revoked|void|invalid|expired|over|finished|"
    r"history|gone|dead|done with|a thing of the past|behind me|off the table|out of the picture|out of date)"
)
# "left Ann two messages" leaves nobody
LEFT_FOR = re.compile(
    r"^ (?:an?|one|two|three|four|\d+|some|several|another|the|my|our|yet another)(?: \w+)? (?:messages?|notes?|voicemails?|texts?|emails?|reviews?|tips?|keys?|word)\b"
)
# ", hours are all over", ", Thursday's gone"
OTHER_SUBJECT = re.compile(
    r", (?!(?:it|that|this|they|which|who|he|she|we|and|but|so|all|both|now|then|my|our|the)\b)[a-z]+(?:'s| is| are| was| were)\b"
)
# "never had the right umbrella" denies the umbrella
OWN_OBJECT = re.compile(r" (?:the|an?|any|my|his|her|its|their|our|much|enough)\b")
# 今日は宮下内科の日でした tells a day, no former state
EVENT_JA = re.compile(r"(?:^|[、。])(?:今日|きょう|本日|今朝|昨日|きのう|おととい|一昨日|先日|さっき)[はも、]")
PREMISE_JA = re.compile(r"(?:から|ので)、")  # what comes before it is given, whatever is weighed after it
# 家内は好きですが、わたしはあれが苦手で
MINE_AFTER_ALL_JA = re.compile(
    r"(?:が|けど|けれど)、(?:わたし|私|僕|ぼく|俺|おれ|自分)(?:は|には)(?:あれ|それ|これ)|うち(?:に|で)も(?:い|あ|飼|育)"
)
ENDED_AFTER = re.compile(
    rf"^[^.;:。]{{0,70}}?(?<!i )(?<!we )\b(?:(?:was|were|is|are|'s|has been|have been|had been|got|been) (?:all |now |finally |permanently |unfortunately )?{_OVER}|(?:has|have|had) (?:ended|died|closed down|shut down|folded|expired|lapsed|fallen through|stopped|come to an end|cleared up|disappeared)|"
    r"came to an end|come to nothing|came to nothing|came back negative|went missing|ran away|(?:is|are|was) off(?=[.,;]|$)|fell through|didn't work out|fell apart|(?:died|folded|lapsed|expired|disbanded|passed away|ended|broke down for good|closed down|shut down)(?= |,|\.|$)|stopped being|ceased to be|split up|broke up|parted ways)\b"
)
# verbs of ending in Japanese, where they are said as done or decided
_ENDS = (
    r"(?:やめ|辞め|止め|取りやめ|取り止め|とりやめ|手放し|離れ|降り|外れ|外し|抜け|諦め|あきらめ|別れ|捨て|譲っ|譲り|売っ|売り払っ|断っ|取り消し|枯らし|枯れ|失くし|なくし|返し|下り|引き払っ|畳ん|閉じ|懲り)(?=た|て(?!い(?:ない|ません))|まし|し(?:た|て|ま)|る(?!か|な|まで|前|ほど|わけ|と)|ている|。|、|$|で|り)|"
    r"(?:解約|退会|解除|キャンセル|中止|終了|売却|処分|返却|返上|退職|退社|退団|退部|脱退|引退|辞退|断念|卒業|撤退|離脱|廃止|廃棄|廃車|没|閉店|閉鎖|閉院|閉業|廃業|倒産|破産|閉校|廃刊|終刊|打ち切り|破棄|破談|離婚|解散|却下|白紙|完治|克服|取り消し|取消)(?=し(?!な|ませ|よう)|済|に(?!な(?:る前|ら|れ)|する(?:か|な))|と(?:し|な)|された|となった|になった|。|、|$|み|を(?:し|申)|の手続|する(?:こと|予定))"
)
ENDED_JA = re.compile(
    rf"{_ENDS}|(?:治|終わ|亡くな|失効し|枯れ|死ん|いなくな|消え)(?:った|って|りました|り、|だ|た(?!ら)|てしま)|使えなくな|なくなっ|やめにし|おしまい|ご無沙汰|縁を切|(?:足|籍)を(?:洗|抜)|はずれ(?:た|まし)|外して(?:もら|いる)|から外|(?:塞|ふさ)が(?:った|って|りま)"
)
NO_END_JA = re.compile(
    r"売って(?:い|お)?(?:る|ます|り)|(?:やめ|辞め|止め|手放|離れ|諦め|あきらめ|別れ)(?:られ|たく|ず|な(?:い|かった|く)(?!な)|よう(?:か|と)|ません|るつもりはな|る気はな)|(?:解約|キャンセル|退会|中止|卒業)(?:せず|しな|しませ|しようか|できな)"
)
OVERCOME = re.compile(
    r"克服|(?:られ|べれ|飲め|め)るように(?:なっ|なり)|平気になっ|好きになっ|大丈夫になっ|治っ|\b(?:can (?:now )?eat|grown to like|got over)\b"
)

# --- unreal -----------------------------------------------------------------------------------------------------

UNREAL = re.compile(
    r"\b(?:might|thinking (?:about|of)|thought (?:about|of)|considering|wonder(?:s|ed|ing)? (?:whether|if|about)|asked (?:whether|if|about)|(?:hasn't|haven't|not|yet to) (?:yet )?(?:decide|decided|made up)|undecided|there's talk|toying with|would(?:n't mind| like| love| be nice)|'d (?:love|like) to|"
    r"wants to try|want to try|dream(?:s|t|ed|ing)? of|considered|contemplat\w+|mulling|ponder\w+|weigh(?:s|ed|ing) (?:up|whether)|on the fence|in two minds|perhaps|maybe|if (?:i|we|the user) (?:ever|had|could|were|get|got|move|moved|win|won)|someday|one day (?:i|we)|tempted|debating|rumou?rs?|"
    r"turned down|rejected|decided against|looked into|looking into|look(?:s|ed|ing)? at getting|almost|nearly (?:moved|got|bought|took|chose|went)|was going to|were going to|wish(?:es|ed)? (?:i|we|to|they|it)|hop(?:e|es|ing) (?:to|for|that)|suggested|recommended|proposed|offered)\b|"
    r"検討|迷って|てみたい|(?:た|だ)ほうがいいか|(?:た|だ)らどう|変えないこと|据え置き|冗談|考え中|を考えて|か考えて|悩(?:んで|む|み)|見送[っり]|却下|断った|変えずに|変えなかった|噂|うわさ|夢を見た|(?:できる|可能|いい|どう|いく|ある)か(?:聞|尋|問|どうか|確認|調べ)|"
    r"しようか|ようかな|ようかと|[らろ]うかな|たらいいな|たらなあ|れたらいい|もし[^。]{2,30}(?:たら|なら|れば)|候補|気になっている|(?:勧め|すすめ|薦め|提案さ)られ(?!て)|提案され(?!て)"
)
ANOTHER_TOPIC_JA = re.compile("(?:それ|これ|あれ|そこ)は")  # 6人のチームで、それは長いかも
MAYBE_AFTER = re.compile("かもしれ|かも(?:と|ね|$|。)|[うくるすつむ]かな(?:あ|と|$|。)")
# a fact that is a plan itself is not made unreal by hopes
HOPES = re.compile(r"\b(?:hop(?:e|es|ing) (?:to|for|that))\b")
