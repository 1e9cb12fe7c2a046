//! Every function, constant and struct member of afmoe.h has a place in the safe layer. tests/abi/public_abi.txt is the
//! list; a name counts where it stands in the code of a file of src, comments left out.

use std::collections::BTreeSet;
use std::fs;

use super::repository;

/// Functions the safe layer does without; at most 5.
const LEFT_OUT: [(&str, &str); 2] = [
    ("afmoe_session_logits", "Session::logits is the view, which borrows; to_vec copies"),
    ("afmoe_scheduler_run", "Scheduler::run steps, so that a closure's panic goes on after its step"),
];

/// All sources without their comments.
fn sources() -> String {
    let folder = format!("{}/src", env!("CARGO_MANIFEST_DIR"));
    let text: String =
        fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    text.lines().map(|line| line.split("//").next().unwrap().to_string() + "\n").collect()
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect()
}

/// The names of one kind of line: "function NAME: ...", "constant NAME = ...", "member STRUCT.NAME at ...".
fn names<'a>(record: &'a str, kind: &str) -> Vec<&'a str> {
    let lines = record.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    lines.map(|line| line.split([' ', ':']).next().unwrap()).collect()
}

#[test]
fn of_the_whole_header() {
    let record = fs::read_to_string(repository("tests/abi/public_abi.txt")).unwrap();
    let sources = sources();
    let used = words(&sources);

    let functions = names(&record, "function");
    assert!(functions.len() > 70, "{functions:?}");
    let missing: Vec<_> = functions.into_iter().filter(|name| !used.contains(name)).collect();
    assert_eq!(missing, LEFT_OUT.map(|(name, _)| name));
    assert!(LEFT_OUT.len() <= 5);

    // OK is what Result says.
    let constants = names(&record, "constant");
    assert!(constants.len() > 60, "{constants:?}");
    let missing: Vec<_> = constants.into_iter().filter(|name| !used.contains(name)).collect();
    assert_eq!(missing, ["AFMOE_OK"]);

    let members = names(&record, "member");
    assert!(members.len() > 150, "{members:?}");
    let missing: Vec<_> = members
        .into_iter()
        .filter(|name| {
            let member = name.rsplit('.').next().unwrap();
            !used.contains(member) && member != "size" && !member.starts_with("reserved")
        })
        .collect();
    assert_eq!(missing, ["afmoe_error.code"]); // the status says it
}
