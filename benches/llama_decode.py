"""Speed of llama.cpp itself on a perplexity run, for benches/end_to_end.rs.

    llama_decode.py MODEL CORPUS N_CTX WINDOWS THREADS

Needs the PyPI package llama-cpp-python. Default settings of llama-perplexity
(KV cache f16, flash attention auto). Only llama_decode is timed, with logits for
the scored half of each window: the log-softmax, which llama-perplexity does on
top, is left out in its favour. Prints tokens per second.
"""
import ctypes
import sys
import time

import llama_cpp as ll

model_path, corpus, n_ctx, windows, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
quiet = ll.llama_log_callback(lambda level, text, user: None)
ll.llama_log_set(quiet, ctypes.c_void_p(0))
ll.llama_backend_init()
model = ll.llama_model_load_from_file(model_path.encode(), ll.llama_model_default_params())
if not model:
    sys.exit(f"cannot load {model_path}")
vocab = ll.llama_model_get_vocab(model)
with open(corpus, "rb") as f:
    raw = f.read()
buf = (ll.llama_token * (len(raw) + 16))()
n = ll.llama_tokenize(vocab, raw, len(raw), buf, len(buf), True, False)
if n < windows * n_ctx:
    sys.exit("the corpus is too short")

params = ll.llama_context_default_params()
params.n_ctx = params.n_batch = n_ctx
params.n_ubatch = min(512, n_ctx)
params.n_threads = params.n_threads_batch = threads
context = ll.llama_init_from_model(model, params)
if not context:
    sys.exit("cannot create a context")
batch = ll.llama_batch_init(n_ctx, 0, 1)
batch.n_tokens = n_ctx
seconds = 0.0
for w in range(windows):
    for k in range(n_ctx):
        batch.token[k] = buf[w * n_ctx + k]
        batch.pos[k], batch.n_seq_id[k], batch.logits[k] = k, 1, int(k >= n_ctx // 2)
        batch.seq_id[k][0] = 0
    ll.llama_memory_clear(ll.llama_get_memory(context), True)
    start = time.perf_counter()
    if ll.llama_decode(context, batch) != 0:
        sys.exit(f"decoding failed in window {w}")
    ll.llama_synchronize(context)
    seconds += time.perf_counter() - start
print(windows * n_ctx / seconds)
