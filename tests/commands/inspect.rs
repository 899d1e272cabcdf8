use pplx::gguf::Value;

use super::project::Project;
use crate::support::tiny::Tiny;

#[test]
fn a_file_that_can_be_scored() {
    let project = Project::new();
    let text = project.pplx(&["inspect", "m/gemma3.gguf"]).good();
    for expected in [
        "architecture  gemma3\n",
        "layers        3\n  \
         2 ×         sliding-window attention, FFN\n  \
         1 ×         attention, FFN\n",
        "hidden width  16\n",
        "vocabulary    56\n",
        "context       128\n",
        "tokenizer     56 tokens, BOS 1 is added\n",
        "This file can be scored.\n",
    ] {
        assert!(text.contains(expected), "{expected}\n in\n{text}");
    }
    let all = ["inspect", "m/llama.gguf", "--tensors", "--metadata"];
    let text = project.pplx(&all).good();
    assert!(text.contains("llama.rope.freq_base = "), "{text}");
    assert!(
        text.contains("F32      [16, 24]  blk.2.ffn_up.weight\n"),
        "{text}"
    );
}

#[test]
fn files_that_cannot() {
    let project = Project::new();
    Tiny::llama()
        .without("blk.1.attn_v.weight")
        .write(project.path("m/part.gguf"));
    let ended = project.pplx(&["inspect", "m/part.gguf"]);
    assert!(
        ended.stdout.contains(
            "This file cannot be scored:\n  tensor 'blk.1.attn_v.weight' is missing; the \
             architecture needs it with the shape [16, 16]\n"
        ),
        "{}",
        ended.stdout
    );
    assert_eq!(ended.bad(1), "");
    Tiny::llama()
        .tokenizer("model", Value::String("no_vocab".into()))
        .write(project.path("m/mute.gguf"));
    let ended = project.pplx(&["inspect", "m/mute.gguf"]);
    assert!(
        ended.stdout.contains("the file holds no vocabulary"),
        "{}",
        ended.stdout
    );
    ended.bad(1);
    let error = project.pplx(&["inspect", "c/t.txt"]).bad(2);
    assert!(error.contains("c/t.txt: is not a GGUF file"), "{error}");
    let error = project.pplx(&["inspect", "m/none.gguf"]).bad(2);
    assert!(error.contains("m/none.gguf"), "{error}");
}
