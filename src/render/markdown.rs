//! Text from files inside Markdown, where it must stay text: run names and
//! reasons go into comments on pull requests, and anybody can write them.

use super::one_line;

/// Characters that a comment on GitHub holds.
const COMMENT: usize = 65_536;

/// What is to be said of a text that is larger than a comment on GitHub.
pub(crate) fn too_long_note(markdown: &str) -> Option<String> {
    let n = markdown.chars().count();
    (n > COMMENT).then(|| {
        format!("the Markdown has {n} characters, and a comment on GitHub holds {COMMENT}")
    })
}

/// The text, which says first when it is larger than a comment on GitHub.
pub(crate) fn for_a_comment(markdown: String) -> String {
    match too_long_note(&markdown) {
        Some(note) => format!("> Cut where it is posted: {note}.\n\n{markdown}"),
        None => markdown,
    }
}

/// Text as code, on one line. It can stand in a cell of a table. Neither Markdown
/// nor HTML nor what GitHub makes of `@names`, `#1` and addresses has effect in it.
pub(crate) fn code(text: &str) -> String {
    let text = one_line(text);
    if text.is_empty() {
        return text;
    }
    // In a table a pipe ends the cell even within code, and what a backslash
    // before it does depends on the implementation.
    if !text.contains(['`', '|', '\\']) {
        return format!("`{text}`");
    }
    let mut out = "<code>".to_owned();
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            out += &format!("&#{};", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out + "</code>"
}

/// Text as it is where nothing in it means anything to Markdown, else as [`code`].
pub(crate) fn text(text: &str) -> String {
    let means_nothing = |c: char| !c.is_ascii_punctuation() || ".,:;+-%()/='".contains(c);
    if text.chars().all(means_nothing) && !text.contains("://") && !text.contains("www.") {
        one_line(text)
    } else {
        code(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_stays_readable() {
        assert_eq!(code("a_b/c[0,30)"), "`a_b/c[0,30)`");
        assert_eq!(text("Δ +0.7 % outside ±0.1 %"), "Δ +0.7 % outside ±0.1 %");
        assert_eq!(
            text("engine pplx 0.1.0 → pplx 0.2.0"),
            "engine pplx 0.1.0 → pplx 0.2.0"
        );
        assert_eq!(code(""), "");
    }

    #[test]
    fn what_exceeds_a_comment_says_so() {
        let fits = "é".repeat(COMMENT);
        assert_eq!(for_a_comment(fits.clone()), fits);
        let long = for_a_comment(format!("{fits}x"));
        assert!(long.starts_with("> Cut where it is posted: the Markdown has 65537 characters"));
        assert!(long.ends_with("éx"));
    }

    #[test]
    fn nothing_in_hostile_text_has_effect() {
        assert_eq!(code("a|b"), "<code>a&#124;b</code>");
        assert_eq!(code("a`b"), "<code>a&#96;b</code>");
        assert_eq!(code("a\\"), "<code>a&#92;</code>");
        assert_eq!(
            code("a\n| b |\u{202e}"),
            "<code>a &#124; b &#124;&#92;u&#123;202e&#125;</code>"
        );
        for hostile in [
            "@everyone",
            "#1",
            "*x*",
            "_x_",
            "[a](b)",
            "<b>",
            "see https://x.y",
            "www.x.y",
            "x&amp;",
        ] {
            assert_eq!(text(hostile), format!("`{hostile}`"));
        }
    }
}
