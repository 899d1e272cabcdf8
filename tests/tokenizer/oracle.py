#!/usr/bin/env python3
"""Makes the reference files of these tests with llama.cpp's own tokenizer.

    pip install llama-cpp-python==0.3.36 gguf
    python oracle.py SHARED_FOLDER MODEL.gguf...   # the folder with vocab/ and corpora/

Writes, beside this script: texts.txt (the cases, each behind it a separator
line), pretokenizers.csv (every pre-tokenizer name on the vocabulary of byte
pairs that `pair_vocab` and support.rs build alike) and vocabularies.csv (the
real vocabularies of SHARED_FOLDER and the models, on WikiText-2 and on the cases
mixed with the vocabulary's special tokens).
A hash is the SHA-256 of the ids as little-endian 32-bit numbers; the ids of one
case are followed by 0xffffffff.
"""
import csv, ctypes, hashlib, os, random, re, struct, sys, tempfile
import gguf
import llama_cpp as ll

HERE = os.path.dirname(os.path.abspath(__file__))
SEPARATOR = "\n__ggml_vocab_test__\n"

# Every name that llama.cpp accepts for byte-level BPE, save those of other
# models of text ("whitespace", "gemma4" and its like).
NAMES = """default minicpm5 llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2
jina-v5-nano deepseek-llm deepseek-coder deepseek-v3 spark2_5 youtu falcon mpt starcoder gpt-2
phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jais-2 jina-v1-en
jina-v2-code roberta-bpe refact command-r qwen2 deepseek-r1-qwen kormo f2llmv2 qwen35 stablelm2
olmo dbrx smaug-bpe poro-chat chatglm-bpe glm4 glm5 viking jais tekken smollm codeshell bloom
gpt3-finnish exaone exaone4 exaone-moe chameleon minerva-7b megrez gpt-4o llama4 kanana2 talkie
granite-embed-multi-97m tiny_aya cohere2moe superbpe trillion granite-docling bailingmoe
bailingmoe2 llada-moe seed-coder hunyuan hunyuan-dense hy_v4 joyai-llm kimi-k2 ufakzeka grok-2
afmoe laguna minimax-m2 solar-open mellum2""".split()


def byte_chars():
    """GPT-2's characters for the bytes."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(0x100, 0x200))
    return [chr(b) if b in keep else chr(next(rest)) for b in range(256)]


WORDS = ["Ġthe", "hello", "Ġhello", "2024", "ĠĠĠĠ", "ĊĊĊ", "don't", "Ġworld", "...Ċ"]


def pair_vocab(pre, path):
    """All bytes, all pairs of bytes, merged in a scrambled order, and some words
    that no merges make: every boundary between pieces shows in the ids."""
    c = byte_chars()
    tokens = c + [a + b for a in c for b in c] + WORDS + ["<bos>"]
    order = [i * 40503 % 65536 for i in range(65536)]
    merges = [f"{c[i >> 8]} {c[i & 255]}" for i in order]
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types([1] * (len(tokens) - 1) + [3])
    w.add_token_merges(merges)
    w.add_bos_token_id(len(tokens) - 1)
    w.add_eos_token_id(len(tokens) - 1)
    finish(w)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load(path):
    params = ll.llama_model_default_params()
    params.vocab_only = True
    model = ll.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit(f"cannot load {path}")
    return model


def tokenize(model, text, special, parse):
    raw = text if isinstance(text, bytes) else text.encode()
    vocab = ll.llama_model_get_vocab(model)
    buf = (ll.llama_token * (len(raw) + 16))()
    n = ll.llama_tokenize(vocab, raw, len(raw), buf, len(buf), special, parse)
    if n < 0:
        sys.exit("tokenization failed")
    return list(buf[:n])


def digest(streams):
    h, count = hashlib.sha256(), 0
    for ids in streams:
        h.update(struct.pack(f"<{len(ids)}I", *ids) + b"\xff\xff\xff\xff")
        count += len(ids)
    return count, h.hexdigest()


def random_texts():
    """Random texts of characters that pre-tokenizers tell apart."""
    rng = random.Random(20261)
    pools = [
        "abcdefgstmdrevlSTMDREVLXYZ", "  \t\n\r\n ", "0123456789", ".,:;!?'\"-_()[]{}/\\#@&*%",
        "$+<=>^`|~", "'", "éÉßſKμΩяЖ", "ǅǈʰªºˠ", "漢字中一龥龦々〇㐀𠀀豈", "ひらカナー", "한글힣ㄱㆎㄅㄯ",
        "กำไทย຀ກខ្ម", "ەسلامअनि", "\u0301\u0308\u093f\u20dd", "٠١٢३½²Ⅷ①", "🦙👩\u200d💻❤\ufe0f",
        "\u00a0\u2003\u3000\u2028\u0085\u1680", "\u200b\u00ad\u0001\u001f\u007f\ue000", "。、，！…—“”‘’：；．￥",
        "\u0378\U000e0fff", "\u1c89\ua7cb\U00010d40\u0897\u1b4e\u2427\U0001ccf0", "ＡＺａｚ！～Ⰰꙭ𐐀ᲐᏴ", "▁",
    ]
    words = ["don't", "WE'LL", "I'm", "hello", " hello", "2024", "the", " the", "    ", "\n\n\n", "...\n",
             "<sentinel:12>", "IMGIMGABIZ", "IMGIMGABCDEFZ", "CamelCase", "HTTPServer", "x'Sy", "</s>", "a/b\r\n/", "'ſ"]
    cases = []
    for _ in range(2500):
        text = ""
        for _ in range(rng.randint(1, 6)):
            pool = rng.choice(pools)
            text += rng.choice(words) if rng.random() < 0.15 else "".join(
                rng.choice(pool) for _ in range(rng.randint(1, 5)))
            if rng.random() < 0.3:
                text += rng.choice([" ", "  ", "\n", " \n", "\r\n", "\t"])
        cases.append(text)
    for n in [*range(1, 20), 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 900]:
        for unit in [" ", "\n", "\t", "a", "7", "\u0664", "."] if n < 34 else [" "]:
            cases += [unit * n, f"x{unit * n}", f"{unit * n}y", f"x {unit * n} y"]
    cases += ["hello  world   the    end", "1234567 12 123 1234", "x1234567y12 ab12345", "a  1234", "ab.  12,345.678"]
    return [c for c in cases if "__ggml" not in c]


def with_specials(cases, model_path):
    """The cases with special tokens of the vocabulary in and between them."""
    fields = gguf.GGUFReader(model_path).fields
    kinds = fields["tokenizer.ggml.token_type"].contents()
    texts = fields["tokenizer.ggml.tokens"].contents()
    known = [t for t, k in zip(texts, kinds) if k in (2, 3, 4)] or [""]
    glue = ["", " ", "\n", "  x"]
    for i, case in enumerate(cases):
        first, second = known[i * 7 % len(known)], known[(i * 13 + 5) % len(known)]
        yield case + first + glue[i % 4] + second + case


def write_csv(name, header, rows):
    with open(os.path.join(HERE, name), "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(header)
        out.writerows(rows)


def main():
    shared = sys.argv[1]
    keep = ll.llama_log_callback(lambda level, text, user: None)
    ll.llama_log_set(keep, ctypes.c_void_p(0))
    ll.llama_backend_init()

    cases = random_texts()
    with open(os.path.join(HERE, "texts.txt"), "w", newline="") as f:
        f.write("".join(c + SEPARATOR for c in cases))

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pairs.gguf")
        for name in NAMES:
            pair_vocab(name, path)
            model = load(path)
            rows.append([name, *digest(tokenize(model, c, True, False) for c in cases)])
            ll.llama_model_free(model)
    write_csv("pretokenizers.csv", ["pre", "tokens", "sha256"], rows)

    corpus = open(os.path.join(shared, "corpora/wiki.test.raw"), "rb").read()
    rows = []
    folder = os.path.join(shared, "vocab")
    files = [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(".gguf")]
    for path in files + sys.argv[2:]:
        model = load(path)
        name = re.sub("^ggml-vocab-", "", os.path.basename(path))[: -len(".gguf")]
        for parse in ("false", "true"):
            mixed = with_specials(cases, path)
            ids = (tokenize(model, c, True, parse == "true") for c in mixed)
            rows.append([name, "cases", parse, *digest(ids)])
        rows.append([name, "wikitext", "false", *digest([tokenize(model, corpus, True, False)])])
        ll.llama_model_free(model)
    write_csv("vocabularies.csv", ["vocabulary", "texts", "parse_special", "tokens", "sha256"], rows)


if __name__ == "__main__":
    main()
