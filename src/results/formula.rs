//! Cells that a spreadsheet would compute.

/// What Excel, LibreOffice and Google Sheets take for the beginning of a formula, in
/// half and full width.
const BEGINNINGS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// The character with which `text` would begin a formula in a spreadsheet, if it
/// would. White space before it does not help.
pub fn formula_character(text: &str) -> Option<char> {
    let first = text.trim_start().chars().next();
    first.filter(|c| BEGINNINGS.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_a_formula() {
        assert_eq!(formula_character("=1+1"), Some('='));
        assert_eq!(formula_character("\t@x"), Some('@'));
        assert_eq!(formula_character("llama-3=x"), None);
        assert_eq!(formula_character(""), None);
    }
}
