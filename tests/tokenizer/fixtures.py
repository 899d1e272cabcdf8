#!/usr/bin/env python3
"""Makes small vocabularies of kinds for which no real one is at hand (NAME.gguf),
and fixtures.csv, hashes of llama.cpp's ids for the cases of texts.txt (see
oracle.py, which makes those; run this after it).
"""
import ctypes, os, random, struct
import gguf
import llama_cpp as ll
from oracle import HERE, SEPARATOR, digest, finish, load, tokenize, write_csv


def charsmap(entries):
    """A precompiled character map: length, double array, strings."""
    strings, offsets = b"", {}
    for text in entries.values():
        offsets[text] = len(strings)
        strings += text.encode() + b"\0"
    tree = {}
    for key, text in entries.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = offsets[text]

    # Node n has its children at n ^ offset ^ byte; a leaf's value is at n ^ offset.
    array, bases = {0: 0}, set()

    def place(tree, at, word):
        """Finds an offset of its own whose slots for the node's children are free."""
        wanted = [0 if byte is None else byte for byte in tree]
        fits = lambda b: b not in bases and all((b ^ w) not in array for w in wanted)
        base = next(b for b in range(256, 1 << 18) if fits(b))
        bases.add(base)
        offset = base ^ at
        assert offset < 1 << 21
        array[at] = word | offset << 10 | (256 if None in tree else 0)
        for byte in tree:
            array[base ^ (byte or 0)] = 0 if byte else tree[None] | 1 << 31
        for byte, child in tree.items():
            if byte is not None:
                place(child, base ^ byte, byte)

    place(tree, 0, 0)
    size = (max(array) // 256 + 2) * 256
    words = struct.pack(f"<{size}I", *(array.get(i, 0) for i in range(size)))
    return struct.pack("<I", len(words)) + words + strings


def unigram(path):
    rng = random.Random(5)
    tokens = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2), ("▁", -2.0, 1)]
    words = set()
    letters = "abcdefgstmdrevlSTMDREVLXYZ0123456789.,:;!?'\"-éßКшая漢字中ひらカ한글\u0301👩💻"
    for c in letters:
        if c not in "Zgé中":
            words.add(c)
    for _ in range(600):
        words.add("".join(rng.choice(letters) for _ in range(rng.randint(2, 4))))
    words |= {"▁the", "▁hello", "hello", "▁▁", "▁▁▁", "don", "n't", "world", "...", "▁a", "a▁b", "20", "2024", "fi"}
    tokens += [(w, -round(rng.uniform(3, 12), 3), 1) for w in sorted(words)]
    tokens += [("<mark>", -1.0, 4), ("漢字!", -1.0, 4), ("zz", -3.5, 5)]
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("t5")
    w.add_tokenizer_pre("default")
    w.add_token_list([t for t, _, _ in tokens])
    w.add_token_scores([s for _, s, _ in tokens])
    w.add_token_types([k for _, _, k in tokens])
    w.add_add_space_prefix(True)
    w.add_remove_extra_whitespaces("merged" in path)
    w.add_precompiled_charsmap(charsmap({
        "\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u2003": " ", "\u3000": " ", "\u0001": "", "\u200b": "",
        "½": "1⁄2", "²": "2", "Ⅷ": "VIII", "①": "1", "Ａ": "A", "Ｚ": "Z", "ａ": "a", "ｚ": "z", "！": "!",
        "a\u0301": "á", "e\u0301": "é", "ǅ": "Dž", "ª": "a", "．": ".", "…": "...", "ﬁ": "fi", "\u0085": "",
    }))
    w.add_uint32("tokenizer.ggml.unknown_token_id", 2)
    w.add_uint32("tokenizer.ggml.eos_token_id", 1)
    finish(w)


def rwkv(path):
    rng = random.Random(6)
    escape = lambda raw: "".join(
        chr(b) if 32 < b < 127 and b != 92 else {9: "\\t", 10: "\\n", 13: "\\r", 92: "\\\\", 32: " "}.get(b, f"\\x{b:02x}") for b in raw)
    raws = [bytes([b]) for b in range(256) if b not in b"Z\x1f"]
    more = set()
    letters = "abcdefgstmdrevlSTMDREVLXY0123456789.,:;!?'\"- \n"
    for _ in range(500):
        more.add("".join(rng.choice(letters) for _ in range(rng.randint(2, 4))).encode())
    for c in "éßКшая漢字中ひら한글👩💻":
        more |= {c.encode(), c.encode()[:2], c.encode() + b" "}
    raws += sorted(more - set(raws))
    raws += [b"Zebra"]
    w = gguf.GGUFWriter(path, "rwkv6")
    w.add_tokenizer_model("rwkv")
    tokens = ["<s>"] + [escape(r) for r in raws]
    assert len(set(tokens)) == len(tokens)
    w.add_token_list(tokens)
    w.add_token_types([3] + [1] * len(raws))
    w.add_uint32("tokenizer.ggml.unknown_token_id", 0)
    finish(w)


def text_bpe(path):
    """BPE over plain text with U+2581 for spaces, as in Gemma 4."""
    rng = random.Random(8)
    alphabet = sorted(set("▁▁abcdefgstmdrevlSTMDREVLXYZ0123456789.,:;!?'\"-éßКшая漢字中ひら한글\u0301👩💻\n") - set("gé中"))
    tokens = [("<pad>", 3), ("<eos>", 3), ("<bos>", 3), ("<unk>", 2)]
    tokens += [(f"<0x{b:02X}>", 6) for b in range(256)] + [(c, 1) for c in alphabet]
    known, merges = set(alphabet), []
    inside = [c for c in alphabet if c != "\n"] + ["g"]  # a part that is no token
    parts = list(inside)
    while len(merges) < 3000:
        a, b = rng.choice(parts), rng.choice(parts)
        if len(a + b) > 6 or f"{a} {b}" in merges:
            continue
        merges.append(f"{a} {b}")
        if a + b not in known:
            parts.append(a + b)
            if rng.random() < 0.95:  # the others fall back to their bytes
                known.add(a + b)
                tokens.append((a + b, 1))
    merges += ["▁ ▁", "▁▁ ▁▁", "▁ ▁▁", "t h", "th e", "▁ the", "▁t he", "h e"]
    for word in ["▁▁", "▁▁▁▁", "▁▁▁", "th", "the", "▁the", "▁t", "he", "\n\n", "\n\n\n\n"]:
        if word not in known:
            known.add(word)
            tokens.append((word, 1))
    if "h" not in known:
        tokens.append(("h", 1))
    tokens.append(("<mark>", 4))
    w = gguf.GGUFWriter(path, "llama")
    if "gemma4" in path:
        w.add_tokenizer_model("gemma4")
    else:
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("sarvam-moe")
    w.add_token_list([t for t, _ in tokens])
    w.add_token_types([k for _, k in tokens])
    w.add_token_merges(list(dict.fromkeys(merges)))
    w.add_bos_token_id(2)
    w.add_eos_token_id(1)
    w.add_add_bos_token(False)
    finish(w)


def main():
    keep = ll.llama_log_callback(lambda level, text, user: None)
    ll.llama_log_set(keep, ctypes.c_void_p(0))
    ll.llama_backend_init()
    cases = open(os.path.join(HERE, "texts.txt"), newline="").read().split(SEPARATOR)[:-1]
    rows = []
    for name, make in [("unigram", unigram), ("unigram-merged", unigram), ("rwkv", rwkv),
                       ("gemma4", text_bpe), ("sarvam-moe", text_bpe)]:
        path = os.path.join(HERE, name + ".gguf")
        make(path)
        model = load(path)
        # RWKV: llama.cpp never ends on "Z" here, which begins a token but is none.
        texts = [c.replace("Z", "z") for c in cases] if name == "rwkv" else cases
        rows.append([name, *digest(tokenize(model, t, True, False) for t in texts)])
    write_csv("fixtures.csv", ["fixture", "tokens", "sha256"], rows)


if __name__ == "__main__":
    main()
