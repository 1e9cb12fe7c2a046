//! Forked and restored sessions go on to the same bits.

use afmoe::{Context, ContextOptions, ErrorKind, GenerateOptions, Session};

use super::{after, nano, pico, session_of};

/// Logits after each of some tokens, as bits.
fn go_on(session: &mut Session) -> Vec<Vec<u32>> {
    let mut out = Vec::new();
    for token in [300, 17, 300] {
        out.push(session.logits().unwrap().iter().map(|logit| logit.to_bits()).collect());
        session.append(&[token]).unwrap();
    }
    out
}

#[test]
fn fork() {
    let mut session = after("Once upon a time, Jack walked to the forest.");
    let mut fork = session.fork().unwrap();
    assert_eq!(fork.tokens(), session.tokens());
    assert_eq!(fork.stats().unwrap().n_prompt_computed, 0);
    let expected = go_on(&mut session);
    assert_eq!(go_on(&mut fork), expected);

    // Apart, and back to where the other one, which is gone, was.
    fork.append(&[5, 6]).unwrap();
    let (context, tokens) = (session.context().clone(), session.tokens().unwrap());
    drop(session);
    fork.sync(&tokens).unwrap();
    let mut alone = context.session().unwrap();
    alone.append(&tokens).unwrap();
    assert_eq!(fork.tokens().unwrap(), tokens);
    fork.append(&[5]).unwrap();
    alone.append(&[5]).unwrap();
    assert_eq!(fork.logits(), alone.logits());
}

#[test]
fn memory() {
    let mut session = after("Once upon a time, Jack walked to the forest.");
    let saved = session.save_to_vec().unwrap();
    let mut restored = session_of(&pico());
    restored.append(&[1, 2, 3]).unwrap(); // it goes
    restored.load_from_slice(&saved).unwrap();
    let tokens = session.tokens().unwrap();
    assert_eq!(restored.sync(&tokens).unwrap().n_computed, 0);
    let expected = go_on(&mut session);
    assert_eq!(go_on(&mut restored), expected);

    let tokens = restored.tokens().unwrap();
    let mut refused = |data: &[u8]| restored.load_from_slice(data).unwrap_err().kind();
    assert_eq!(refused(&saved[..saved.len() - 1]), ErrorKind::Truncated);
    let mut flipped = saved.clone();
    *flipped.last_mut().unwrap() ^= 1;
    assert_eq!(refused(&flipped), ErrorKind::Corrupt);
    assert_eq!(restored.tokens().unwrap(), tokens);
    assert_eq!(session_of(&nano()).load_from_slice(&saved).unwrap_err().kind(), ErrorKind::State);
}

#[test]
fn file() {
    let mut session = after("Once upon a time");
    let path = std::env::temp_dir().join(format!("afmoe-rust-{}.state", std::process::id()));
    session.save(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), session.save_to_vec().unwrap());
    let mut restored = session_of(&pico());
    let loaded = restored.load(&path);
    std::fs::remove_file(&path).unwrap();
    loaded.unwrap();
    let expected = go_on(&mut session);
    assert_eq!(go_on(&mut restored), expected);
    assert_eq!(restored.load(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(restored.save(path.join("x")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(restored.save("nul\0byte").unwrap_err().kind(), ErrorKind::Invalid);
}

/// What a dropped session leaves, and snapshots, are found again.
#[test]
fn kept() {
    let model = pico();
    let tokens: Vec<_> = (0..600).map(|i| i * 7 % 500 + 10).collect();
    let options = ContextOptions::new().n_threads(2).rewind_tokens(64);
    let context = Context::with_options(&model, &options.prefix_bytes(1 << 28)).unwrap();
    let mut first = context.session().unwrap();
    first.append(&tokens).unwrap();
    drop(first);
    assert!(context.memory().unwrap().prefixes > 0);
    assert!(context.session().unwrap().append(&tokens).unwrap().n_reused > 0);

    let back = |options: ContextOptions<'_>| {
        let mut session = Context::with_options(&model, &options.rewind_tokens(0)).unwrap().session().unwrap();
        session.append(&tokens).unwrap();
        let done = session.rewind(200).unwrap();
        assert_eq!(done.n_tokens, 200);
        done.n_computed
    };
    let with = ContextOptions::new().snapshot_tokens(64).snapshot_bytes(1 << 28);
    assert!(back(with) < back(ContextOptions::new()));
}

/// What a dropped session leaves on disk is found by another context.
#[test]
fn kept_on_disk() {
    let model = pico();
    let tokens: Vec<_> = (0..300).map(|i| i * 7 % 500 + 10).collect();
    let folder = std::env::temp_dir().join(format!("afmoe-rust-{}-prefixes", std::process::id()));
    let options = || ContextOptions::new().n_threads(2).prefix_folder(&folder).prefix_folder_bytes(1 << 28);
    let n_reused = |_| {
        let context = Context::with_options(&model, &options()).unwrap();
        let n_reused = context.session().unwrap().append(&tokens).unwrap().n_reused;
        let info = context.info().unwrap();
        assert_eq!((info.n_prefix_files_written, info.n_prefix_files_failed), (u64::from(n_reused == 0), 0));
        assert_eq!(info.n_prefix_files_read, u64::from(n_reused > 0));
        n_reused
    };
    let found: Vec<_> = (0..2).map(n_reused).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found, [0, 299]);
    let nul = Context::with_options(&model, &ContextOptions::new().prefix_folder("nul\0byte")).unwrap_err();
    assert_eq!(nul.kind(), ErrorKind::Invalid);
}

/// Drafts change nothing but how long it takes.
#[test]
fn drafts() {
    let text = "The owl sat. The fox ran. ".repeat(8);
    let run = |n_draft| {
        let mut session = after(&text);
        let options = GenerateOptions::new().max_tokens(200).ignore_eos(true).max_draft(n_draft);
        let end = session.generate(None, &options, |_| std::ops::ControlFlow::Continue(())).unwrap();
        (session.tokens().unwrap(), end, session.stats().unwrap())
    };
    let ((tokens, end, _), (drafted_tokens, drafted, stats)) = (run(0), run(8));
    assert_eq!(drafted_tokens, tokens);
    assert_eq!((end.n_drafted, drafted.n_generated), (0, 200));
    assert!(drafted.n_draft_accepted > 0 && drafted.n_draft_accepted <= drafted.n_drafted, "{drafted:?}");
    assert_eq!((stats.n_drafted, stats.n_draft_accepted), (drafted.n_drafted, drafted.n_draft_accepted));

    let mut session = after(&text);
    let options = GenerateOptions::new().max_tokens(200).ignore_eos(true).max_draft(8);
    let mut pieces = session.pieces(None, &options).unwrap();
    while let Some(piece) = pieces.next() {
        let piece = piece.unwrap();
        let given = piece.position + u64::from(piece.token.is_some());
        assert_eq!(pieces.session().n_tokens().unwrap(), given); // guesses are not in the timeline
    }
    let pulled = pieces.generated();
    assert_eq!(session.tokens().unwrap(), tokens);
    assert_eq!((pulled.n_drafted, pulled.n_draft_accepted), (drafted.n_drafted, drafted.n_draft_accepted));
    let too_many = after(&text).pieces(None, &GenerateOptions::new().max_draft(65)).unwrap_err();
    assert_eq!(too_many.kind(), ErrorKind::Invalid);
}
