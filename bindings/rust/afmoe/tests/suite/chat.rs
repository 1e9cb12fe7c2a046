//! The example that chats.

use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn answers() {
    // target/PROFILE/deps/suite-HASH -> target/PROFILE/examples/chat
    let here = std::env::current_exe().unwrap();
    let program = here.parent().unwrap().parent().unwrap().join("examples").join("chat");
    let mut chat = Command::new(program)
        .arg(super::pico_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cargo build --examples, or cargo test without a choice of targets, makes it");
    chat.stdin.take().unwrap().write_all(b"What is the capital of France?\nWhat is 7 plus 12?\n").unwrap();
    let output = chat.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.starts_with("The capital of France is Paris.\n"), "{text}");
}
