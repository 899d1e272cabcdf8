use serde::Deserialize;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
struct Record {
    name: String,
    bos: Option<bool>,
    n: usize,
    x: Option<f64>,
}

impl Columns for Record {
    const COLUMNS: &'static [Column] = &[
        Column::of::<String>("name"),
        Column::of::<Option<bool>>("bos"),
        Column::of::<usize>("n"),
        Column::of::<Option<f64>>("x").optional(),
    ];
}

fn read_bytes(bytes: impl AsRef<[u8]>) -> Result<Vec<(u64, Record)>, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    fs::write(&path, bytes).unwrap();
    let contents = read::<Record>(&path).map_err(|e| e.to_string())?;
    let lines = contents.lines.into_iter();
    Ok(lines.map(|l| (l.line, l.record)).collect())
}

fn problem(bytes: impl AsRef<[u8]>) -> String {
    let message = read_bytes(bytes).unwrap_err();
    message.split_once("t.csv").unwrap().1.to_owned()
}

#[test]
fn lines_are_those_of_an_editor() {
    let text = "name,bos,n\na,true,1\n\n\"b\nb\",true,2\nc,true,3\n";
    for (what, break_) in [("Unix", "\n"), ("Windows", "\r\n"), ("old Mac", "\r")] {
        let lines = read_bytes(text.replace('\n', break_)).unwrap();
        let lines: Vec<u64> = lines.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 4, 6], "{what}");
        // Of errors of each kind, too.
        for (bad, want) in [
            ("c,maybe,3", ":6: column 'bos' holds 'maybe'"),
            ("c,true", ":6: has 2 fields where the header has 3"),
        ] {
            let text = text.replace("c,true,3", bad).replace('\n', break_);
            let message = problem(text);
            assert!(message.starts_with(want), "{what}: {message}");
        }
    }
    let mut text = text.replace('\n', "\r\n").into_bytes();
    let at = text.iter().rposition(|b| *b == b'c').unwrap();
    text[at] = 0xff;
    let message = problem(text);
    assert!(
        message.starts_with(":6: field 1 is not valid UTF-8"),
        "{message}"
    );
}

#[test]
fn what_spreadsheets_and_pandas_write_is_read() {
    let text = "\u{feff}name,bos,n,x\r\nTRUE,TRUE,33.0,33.0\r\n1.0,False,7,\r\nc,,1.00,1e3\r\n";
    let records: Vec<Record> = read_bytes(text).unwrap().into_iter().map(|l| l.1).collect();
    let record = |name: &str, bos, n, x| Record {
        name: name.to_owned(),
        bos,
        n,
        x,
    };
    assert_eq!(
        records,
        [
            // Text stays as it is.
            record("TRUE", Some(true), 33, Some(33.0)),
            record("1.0", Some(false), 7, None),
            record("c", None, 1, Some(1000.0)),
        ]
    );
    // What may mean two things, or nothing.
    for (row, want) in [
        ("a,1,1", "column 'bos' holds '1'"),
        ("a,yes,1", "column 'bos' holds 'yes'"),
        ("a,true,1.5", "column 'n' holds '1.5'"),
        ("a,true,1.", "column 'n' holds '1.'"),
        ("a,true,.0", "column 'n' holds '.0'"),
        ("a,true,1e3", "column 'n' holds '1e3'"),
        ("a,NaN,1", "column 'bos' holds 'NaN'"),
        ("a,true,NaN", "column 'n' holds 'NaN'"),
        ("a,true,\"1,000\"", "column 'n' holds '1,000'"),
    ] {
        let message = problem(format!("name,bos,n\n{row}\n"));
        assert!(message.starts_with(&format!(":2: {want}")), "{message}");
    }
}

#[test]
fn other_separators_and_encodings_are_named() {
    let text = "name,bos,n\na,true,1\n";
    let message = problem(text.replace(',', ";"));
    assert!(
        message.starts_with(":1: the columns are separated by semicolons"),
        "{message}"
    );
    let message = problem(format!("\u{feff}{}", text.replace(',', "\t")));
    assert!(
        message.starts_with(":1: the columns are separated by tabs"),
        "{message}"
    );
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let message = problem([&b"\xff\xfe"[..], &utf16].concat());
    assert!(
        message.starts_with(":1: the file is UTF-16 text"),
        "{message}"
    );
}

#[test]
fn a_file_without_a_byte_has_no_rows() {
    for empty in ["", "\u{feff}", "name,bos,n\n"] {
        assert_eq!(read_bytes(empty).unwrap(), []);
    }
}
