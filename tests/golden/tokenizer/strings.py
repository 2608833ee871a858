"""The texts of tokens.json, by theme."""

CODE = [
    "int main(void)\n{\n    return 0;\n}\n",
    "for (size_t i = 0; i < n; i++)\n\t\tsum += a[i] * b[i];",
    "def f(x: int) -> int:\n    return x**2 + 1  # square\n",
    "class Node:\n    __slots__ = ('left', 'right')\n\n    def __init__(self):\n        self.left = None\n",
    "import numpy as np\nimport torch.nn.functional as F\n",
    "print(f\"{value!r:>{width}}\")",
    "const add = (a, b) => a + b;\nexport default add;",
    "let x = await fetch(`/api/v1/items?id=${id}`);",
    "<div class=\"row\"><span>&nbsp;</span></div>",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name HAVING COUNT(*) > 1;",
    "#include <stdio.h>\n#define MAX(a, b) ((a) > (b) ? (a) : (b))\n",
    "fn main() {\n    println!(\"{:?}\", vec![1u8, 2, 3]);\n}",
    "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hi\") }\n",
    "public static void main(String[] args) throws IOException {",
    "{\"key\": [1, 2.5e-3, true, null, \"a\\nb\"]}",
    "if [ -z \"$1\" ]; then echo 'usage: x FILE' >&2; exit 2; fi",
    "$ grep -rn --include='*.[ch]' TODO . | sort -u",
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a><!-- c --></a>",
    "\\begin{equation} e^{i\\pi} + 1 = 0 \\end{equation}",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "```python\nx = 1\n```\n",
    "std::vector<std::pair<int, double>> v{{1, 2.0}};",
    "template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>",
    "a=b==c!=d<=e>=f&&g||!h&i|j^k~l<<m>>n",
    "x++; ++y; z--; --w; p->q; r.s; t::u; v[0]; (*f)(1)",
    "0x1F 0b1010 0o17 1_000_000 1e-9 .5 5. 3.14f 10ULL",
    "/* comment */ // another\n# and one more\n-- sql\n; lisp\n% tex",
    "\tif x:\n\t\tpass\n\telse:\n\t\traise ValueError('no')\n",
    "        deeply\n                indented\n    code\n",
    "user.name@example.com https://example.org:8080/p/a/t/h?query=1&b=2#frag",
    "C:\\Users\\name\\file.txt and /usr/local/bin",
    "git commit -m \"Fix: off-by-one\" && git push origin HEAD:refs/for/main",
    "[package]\nname = \"x\"\nversion = \"0.1.0\"\n",
    "key: value\nlist:\n  - a\n  - b: c\n",
    "<script>alert('x')</script>",
    "snake_case camelCase PascalCase SCREAMING_SNAKE kebab-case",
    "getHTTPResponseCode2XML parseJSONFromURL",
    "@decorator\nasync def g():\n    yield\n",
    "λx.x ∀x∈ℝ: x² ≥ 0 ∧ ¬∃y",
    "regex: ^(?:[a-z]+|\\d{2,4})\\s*$",
]

ENGLISH = [
    "",
    "a",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "What is the capital of France?",
    "Write a short story about a robot that learns to paint.",
    "ALL CAPS SENTENCE WITH NUMBERS 12345",
    "It's, I'm, you're, we've, they'll, he'd, can't, won't, she's",
    "IT'S, I'M, YOU'RE, WE'VE, THEY'LL, HE'D, CAN'T",
    "It’s a curly apostrophe; they’ll stay apart.",
    "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'x ''s '''",
    "rock'n'roll o'clock 'tis 'twas y'all'd've",
    "don'tdon't don't  don't",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "e.g. i.e. etc. vs. Mr. Dr. St. No. 5",
    "“Quoted”, ‘single’, «guillemets», „low“ — dash – en-dash … ellipsis",
    "Wait... what?! No!!! Really??? (yes) [maybe] {never} <ever>",
    "re-entry co-op mother-in-law twenty-one 50-50",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abababababababababababababababababababab",
    "The the THE tHe thE",
    "I have 3 cats, 2 dogs and 17 fish; that's 22 animals.",
    "On 2024-02-29 at 23:59:60 UTC, version 1.2.3-rc4+build5 shipped.",
    "$1,234.56 €99 £5 ¥1000 ₹50 50% 1/2 #1 @home &c. *star* _under_ ~tilde~",
    "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n",
    "   leading spaces",
    "trailing spaces   ",
    "  both  sides  ",
    "one\ttab\t\ttwo tabs",
    "Summarise the following text in one sentence:\n\nCats sleep a lot.",
    "Translate to German: good morning",
    "1. First\n2. Second\n3. Third\n",
    "Dear Sir or Madam,\n\nI am writing to...\n\nYours faithfully,\nJ. Doe",
    "naïve café résumé façade jalapeño Zürich Ångström",
    "I ❤ NY",
]

DIGITS = [
    "0", "7", "42", "007", "1234567890", "3.14159265358979", "1,000,000", "1 2 3 4 5", "12 34 56",
    " 1", " 12", "  123", "a1b2c3", "1a2b3c", "x86_64", "H2O CO2 C6H12O6", "2nd 3rd 4th",
    "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "１２３４５", "Ⅷ Ⅻ ⅷ", "½ ¼ ¾ ⅓", "x² y³ z¹⁰", "①②③ ❶❷ ⑴",
    "〇一二三四五", "𝟘𝟙𝟚𝟛 𝟬𝟭𝟮", "𑁦𑁧𑁨", "9" * 50, "1\n2\n3", "1\t2\t3", "-1 +2 ±3", "1e10 1E-5",
    "192.168.0.1:443", "+1 (555) 010-9999", "0000000000", "12:30–13:45",
]

SCRIPTS = [
    "你好，世界！", "今天天气很好，我们去公园吧。", "人工智能正在改变世界。", "中文和English混合的句子123",
    "繁體中文與簡體中文", "こんにちは、世界！", "日本語のテキストをトークンに分ける。", "カタカナ ｶﾀｶﾅ ひらがな",
    "안녕하세요 세계", "한국어 토크나이저 시험", "조합형 한글 각",
    "مرحبا بالعالم", "السَّلامُ عَلَيْكُم", "اللغة العربية 123 نص", "فارسی می‌خواهم", "اردو زبان",
    "שלום עולם", "עִבְרִית מְנֻקֶּדֶת", "Привет, мир!", "Съешь же ещё этих мягких французских булок",
    "Українська мова — їжак", "Γειά σου Κόσμε", "Ωκεανός ΟΣ ος", "नमस्ते दुनिया", "हिन्दी में लिखा गया वाक्य।",
    "বাংলা ভাষা", "ਪੰਜਾਬੀ", "ગુજરાતી", "தமிழ் மொழி", "తెలుగు", "ಕನ್ನಡ", "മലയാളം", "සිංහල", "ภาษาไทยไม่มีช่องว่าง",
    "ພາສາລາວ", "བོད་སྐད", "မြန်မာဘာသာ", "ქართული ენა", "Հայերեն", "አማርኛ", "ភាសាខ្មែរ", "ᠮᠣᠩᠭᠣᠯ", "Tiếng Việt có dấu",
    "Türkçe İstanbul ığüşöç", "Zażółć gęślą jaźń", "Příliš žluťoučký kůň", "Ærø Øre Åse ß ẞ", "ʻŌlelo Hawaiʻi",
    "ǄǅǆǇǈǉ ﬁ ﬂ ﬀ ſ ŉ", "𐍈𐌰𐌹𐌻𐌰", "𓀀𓁐𓂀", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒞𝓊𝓇𝓁𝓎 𝕭𝖔𝖑𝖉", "ⓐⓑⓒ Ⓐ ㈱ ㍿ ㎏", "ꙮ ꜳ ꝏ", "ᚠᚢᚦᚨᚱᚲ",
]

EMOJI = [
    "🙂", "🙂🙃🙂", "Hi 👋!", "👍🏽👍🏿", "👩‍👩‍👧‍👦", "🏳️‍🌈 🏴‍☠️", "🇩🇪🇫🇷🇯🇵", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "1️⃣2️⃣#️⃣", "❤️❤︎", "🧑🏻‍🚀🧑🏾‍🔬", "🦙🦙🦙",
    "text🙂text 🙂 text", "😀" * 20, "👨‍❤️‍💋‍👨", "☃ ☂ ☄ ★ ☆ ♠♣♥♦", "→←↑↓⇒⇔ ∑∏∫√∞≈≠≤≥", "█▓▒░ ┌─┐│└┘", "🫠🫡🫥", "™®©℠ °′″",
]

COMBINING = [
    "e\u0301", "e\u0301le\u0300ve", "n\u0303 o\u0308 a\u030a", "Z\u0351\u036b\u0343a\u0300l\u0334\u0310g\u0321o\u0338",
    "\u0301", " \u0301", "a \u0301b", "a\u20dd", "क\u094d\u0937", "\u1100\u1161\u11a8", "\u0e01\u0e33", "\u200d", "a\u200db",
    "a\u200cb", "a\u2060b\ufeffc", "\ufeffBOM first", "\ufe0f", "x\ufe0e", "\u00ad soft\u00adhyphen", "\u034f",
    "e\u0301" * 30, "\u0928\u093f", "\u05e9\u05c1", "1\u0301 2\u20e3", "'\u0301s", " \u0308 \u0308",
]

CONTROL = [
    "\x00", "a\x00b", "\x00\x00\x00", "\x01\x02\x03", "\x04", "a\x04b\x06c\x13d\x14e\x16f\x1dg", "\x07bell\x08back",
    "\x1b[31mred\x1b[0m", "\x7f", "\x80\x81\x84", "\x85", "a\x85b", "!\x85", "\x9f", "\x1c\x1d\x1e\x1f", "tab\x0bvt\x0cff",
    "\x0e\x0f\x10\x11\x12", "\u2028line\u2029para", "\ufffd", "\ufffe\uffff", "\U0010ffff", "\ue000\uf8ff", "\U000f0000",
    "\U000e0001\U000e0041", "\u200e\u200f\u202a\u202c", "\ufff9\ufffa\ufffb", "\U00040000\U0007ffff", "\U00080000",
]

SPACES = [
    " ", "  ", "   ", " " * 4, " " * 8, " " * 16, " " * 17, " " * 100, " " * 1000, "a" + " " * 50 + "b", " " * 33 + "x",
    "\t", "\t\t\t", "\t" * 40, "\n", "\n\n", "\n" * 5, "\n" * 64, "\r", "\r\n", "\r\n\r\n", "a\r\nb\r\n", "a\rb\rc",
    "\n \n  \n   x", " \n", "\n ", " \t \t ", "a \n b", "a\n\n\n b", "a  \n", "a \t\r\n  b", "x\u3000y", "a \u3000b", "\u3000\u3000\u3000",
    "a\u00a0b", "\u00a0\u00a0", " \u00a0 ", "\u2003em\u2009thin\u200a", "\u1680ogham", "\u180emvs \u180e", "a\u180e b", "\u202f1\u202f000",
    "\u205fmath", "\v\f", "word\u2028 next", "end \u2029", " 1", "  1", "   1 ", "1  2", "\n1", "1\n", " \n1\n ", "a  1  b",
    "!  ", "  !", " ! ! ", "\u0085\u0085x", " '", " 's", "  's", "a 's b", "\n's", "\t're", " ' s",
]

SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "x<|im_end|>y", " <|im_end|> ",
    "<|im_start|><|im_start|>", "<|im_start", "<|im_start|", "im_start|>", "<im_start>", "<|IM_START|>", "<| im_start |>",
    "<<|im_end|>>", "<|<|im_end|>", "<|im_<|im_end|>end|>", "<|im_end|>|>", "<repo_name>", "<reponame>", "<repo_name", "repo_name>",
    "<file_sep><filename>", "<gh_stars>100", "<issue_start><issue_comment><issue_closed>", "<jupyter_start><jupyter_text>x<jupyter_code>",
    "<jupyter_output><jupyter_script><empty_output>", "<s></s><unk><pad>", "[INST] [/INST] <<SYS>>", "<|user|><|assistant|>",
    "<|begin_of_text|>", "<\u200b|im_end|>", "＜|im_end|＞", "&lt;|im_end|&gt;", "a<|im_end|>  b", "1<|im_end|>2", "<|im_end|>\n\n<|im_start|>",
    "<empty_outpu<empty_output>t>", "<|endoftext|>'s", "<|fim_prefix|>", "\n<|im_end|>\n",
]

MIXED = [
    "Name:\tAda\r\nAge:\t36\r\n", "«Ça va?» 100 % sûr… 12 000 €", "emoji🙂中文кириллицаعربى123", "x=1;y=2;z=x+y", "a,b;c:d.e!f?g",
    "___---***===+++", "!@#$%^&*()_+-=[]{}|;':\",./<>?`~", "....", "?!?!?!", "((((((((((", "))))))))))", "----------", "==========",
    "//////////", "\\\\\\\\", "''''''''", "\"\"\"\"\"\"", "``````", "~~~~", "^" * 40, "#" * 30, "*" * 70, "abc" * 40, "Ab1" * 30, "-_" * 25,
    "中" * 30, "é" * 30, "x " * 40, " x" * 40, "1 " * 20, "The end.\n\n\n", "\n\n\nThe start", "word," * 20, "🙂a" * 10, "a\u0301b" * 10,
]

THEMES = {
    "code": CODE, "english": ENGLISH, "digits": DIGITS, "scripts": SCRIPTS, "emoji": EMOJI, "combining": COMBINING,
    "control": CONTROL, "spaces": SPACES, "special": SPECIAL, "mixed": MIXED,
}
