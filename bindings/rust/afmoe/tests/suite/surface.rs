//! What each part of the surface answers.

use afmoe::{
    AppendOptions, Cells, ChatOptions, Container, Context, ContextOptions, CpuLevel, Error, ErrorKind, Message, Model,
    ModelOptions, Pooling, Precision, Sampler, SamplerOptions, Special, Token, TokenKind, TokenizeOptions,
};

use super::{nano, pico, pico_path, repository, session_of};

#[test]
fn version() {
    assert_eq!(afmoe::version(), env!("CARGO_PKG_VERSION"));
    assert!(afmoe::build_features().starts_with("c "));
    assert_ne!(afmoe::cpu_level(), CpuLevel::Auto);
    assert_eq!(CpuLevel::Avx2.to_string(), "avx2");
}

#[test]
fn errors() {
    let error: Error = Model::open("no/such/file.gguf").unwrap_err();
    assert_eq!((error.kind(), error.status_name()), (ErrorKind::NotFound, "AFMOE_NOT_FOUND"));
    assert!(error.to_string().contains("no/such/file.gguf") && error.message() == error.to_string());
    assert_eq!(format!("{error:?}"), format!("AFMOE_NOT_FOUND: {error}"));
    assert_eq!(Model::open("nul\0byte").unwrap_err().kind(), ErrorKind::Invalid);
    let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
    drop(boxed);

    let model = pico();
    let refused = |options: ContextOptions<'_>| Context::with_options(&model, &options).unwrap_err().kind();
    assert_eq!(refused(ContextOptions::new().n_threads(0)), ErrorKind::Invalid);
    assert_eq!(refused(ContextOptions::new().n_threads(u32::MAX)), ErrorKind::Invalid);
    assert_eq!(refused(ContextOptions::new().cpu_level(CpuLevel::Other(99))), ErrorKind::Invalid);
    assert_eq!(refused(ContextOptions::new().cpus([1 << 20])), ErrorKind::Invalid);
    assert_eq!(session_of(&model).append(&[Token::MAX]).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn infos() {
    let model = pico();
    let info = model.info();
    assert_eq!((info.container, info.has_weights, info.has_tokenizer), (Container::Gguf, true, true));
    assert!(info.n_layers > info.n_dense_layers && info.n_experts > info.n_experts_per_token);
    let full = (0..info.n_layers).filter(|layer| model.layer_is_full(*layer).unwrap()).count();
    assert_eq!(full, info.n_full_layers as usize);
    assert_eq!(model.layer_is_full(info.n_layers).unwrap_err().kind(), ErrorKind::Invalid);

    let tensors: Vec<_> = model.tensors().collect();
    assert_eq!(tensors.len(), model.tensors().len());
    assert!(tensors.windows(2).all(|two| two[0].name < two[1].name));
    let used = tensors.iter().filter(|tensor| tensor.is_used == Some(true));
    assert_eq!(used.map(|tensor| tensor.n_elements).sum::<u64>(), info.n_parameters);
    let embedding = tensors.iter().find(|tensor| tensor.name == "token_embd.weight").unwrap();
    assert_eq!((&*embedding.format, &embedding.shape[..]), ("Q8_0", &[info.vocab_size, info.hidden_size][..]));

    let template = std::fs::read(repository("models/chat_template.jinja")).unwrap();
    assert_eq!(model.chat_template().unwrap().map(<[u8]>::to_vec), Some(template));
    assert_eq!(nano().chat_template().unwrap(), None);
    assert!(model.stop_tokens().unwrap().contains(&info.eos_token.unwrap()));

    let options = ContextOptions::new().n_threads(1).cells(Cells::F16).precision(Precision::Exact).max_tokens(100);
    let context = Context::with_options(&model, &options.cpu_level(CpuLevel::C)).unwrap();
    let chosen = context.info().unwrap();
    assert_eq!((chosen.n_threads, chosen.cells, chosen.max_tokens), (1, Cells::F16, 100));
    assert_eq!((chosen.precision, chosen.cpu_level), (Precision::Exact, CpuLevel::C));
}

#[test]
fn memory() {
    let (model_options, options) = (ModelOptions::new(), ContextOptions::new().n_threads(2).max_tokens(512));
    let mut said = afmoe::estimate(pico_path(), &model_options, &options, 1, 300).unwrap();
    let context = Context::with_options(&pico(), &options).unwrap();
    let mut session = context.session().unwrap();
    session.append(&vec![1; 300]).unwrap();
    assert_eq!(said.drafts, 4 * (2112 + 256)); // of one draft; nothing is guessed now
    said.drafts = 0;
    assert_eq!(context.memory().unwrap(), said);
    let too_much = afmoe::estimate(pico_path(), &model_options, &options, 1, 513);
    assert_eq!(too_much.unwrap_err().kind(), ErrorKind::ContextFull);
}

#[test]
fn opened_for_other_uses() {
    let path = repository("tests/data/tokenizer/pico-tokenizer.json");
    let model = Model::open_with(path, &ModelOptions::new().tokenizer_only(true)).unwrap();
    assert_eq!(model.info().container, Container::Tokenizer);
    assert_eq!(model.tensors().len(), 0);
    assert_eq!(Context::new(&model).unwrap_err().kind(), ErrorKind::State);
    assert_eq!(nano().tokenize("x").unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn text() {
    let model = pico();
    for text in ["", "a", "naïve 猫 🦉", "  \n\t"] {
        let tokens = model.tokenize(text).unwrap();
        assert_eq!(model.detokenize(&tokens, false).unwrap(), text.as_bytes());
    }
    let long = "The owl sat in the library. ".repeat(10_000); // more than the first guess holds
    let tokens = model.tokenize(&long).unwrap();
    assert_eq!(model.detokenize(&tokens, false).unwrap(), long.as_bytes());
    let every_byte = vec![b'~'; 300_000];
    assert_eq!(model.detokenize(&model.tokenize(&every_byte).unwrap(), false).unwrap(), every_byte);

    let end = model.find_token("<|im_end|>").unwrap().unwrap();
    assert_eq!(model.token_text(end).unwrap(), (&b"<|im_end|>"[..], TokenKind::Control));
    assert_eq!(model.find_token("no token is this").unwrap(), None);
    assert_eq!(model.detokenize(&[end], true).unwrap(), b"");
    assert_eq!(model.detokenize(&[Token::MAX], true).unwrap_err().kind(), ErrorKind::Invalid);

    let text = "<|im_end|> and <|im_end|>";
    let n_ends = |special| {
        let options = TokenizeOptions::new().special(special);
        model.tokenize_with(text, &options).unwrap().into_iter().filter(|token| *token == end).count()
    };
    let front = 0..10;
    assert_eq!([n_ends(Special::All), n_ends(Special::None), n_ends(Special::Ranges(vec![front]))], [2, 0, 1]);
    let limited = TokenizeOptions::new().max_text_bytes(3);
    assert_eq!(model.tokenize_with("four", &limited).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn chat() {
    let model = pico();
    let messages = [Message::system("Be brief."), Message::user("a\0b"), Message::new("x", b"\xff")];
    let options = ChatOptions::new().add_generation_prompt(false);
    let tokens = model.chat_tokenize_with(&messages, &options).unwrap();
    let expected =
        b"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\0b<|im_end|>\n<|im_start|>x\n\xff<|im_end|>\n";
    assert_eq!(model.detokenize(&tokens, false).unwrap(), expected);
    assert!(model.chat_tokenize(&messages).unwrap().starts_with(&tokens));
    assert_eq!(model.chat_tokenize(&[Message::new("a\0b", "")]).unwrap_err().kind(), ErrorKind::Invalid);
    let limited = ChatOptions::new().max_text_bytes(3);
    assert_eq!(model.chat_tokenize_with(&messages, &limited).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn outputs_of_append() {
    let model = nano();
    let info = model.info();
    let (vocab_size, hidden_size) = (info.vocab_size as usize, info.hidden_size as usize);
    let tokens: Vec<Token> = (0..12).map(|i| i * 5 % 300).collect();
    let mut session = session_of(&model);
    let options = AppendOptions::new().logprobs(1..12).logits_at([3, 11]).hidden_at([3, 11]).experts(true);
    let out = session.append_with(&tokens, &options).unwrap();
    assert_eq!((out.appended.n_tokens, out.appended.n_computed), (12, 12));
    assert_eq!((out.logprobs.len(), out.logits.len(), out.hidden.len()), (11, 2 * vocab_size, 2 * hidden_size));
    assert_eq!(&out.logits[vocab_size..], session.logits().unwrap());
    assert_eq!(&out.hidden[hidden_size..], session.hidden().unwrap());

    let experts = out.experts.unwrap();
    assert_eq!(experts.ids.len(), 12 * experts.n_layers * experts.n_experts_per_token);
    let (ids, weights) = experts.chosen(11, experts.n_layers - 1);
    assert!(ids.iter().all(|id| (0..info.n_experts).contains(id)) && weights.iter().all(|w| *w > 0.0));

    // A prefix that is kept is computed again where it is wanted.
    let out = session.sync_with(&tokens[..10], &AppendOptions::new().logprobs(9..10).experts(true)).unwrap();
    assert_eq!(out.experts.unwrap().ids.len() as u64, out.appended.n_computed * ids.len() as u64 * 4);
    assert_eq!(session.rewind(4).unwrap().n_tokens, 4);
    assert_eq!(session.tokens().unwrap(), tokens[..4]);
    assert_eq!(session.logits().unwrap_err().kind(), ErrorKind::State);
    assert_eq!(session.rewind_with(5, &AppendOptions::new()).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(session.rewind_with(2, &AppendOptions::new()).unwrap().appended.n_tokens, 2);

    for wrong in [
        AppendOptions::new().logprobs(0..1),
        AppendOptions::new().logprobs(3..u64::MAX),
        AppendOptions::new().logits_at([5, 4]),
        AppendOptions::new().hidden_at([0]),
    ] {
        assert_eq!(session.append_with(&tokens, &wrong).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(session.n_tokens().unwrap(), 2);
}

#[test]
fn distribution() {
    let model = nano();
    let mut session = session_of(&model);
    session.append(&[1, 2, 3]).unwrap();
    let logprobs = session.logprobs().unwrap();
    assert!((logprobs.iter().map(|logprob| f64::from(*logprob).exp()).sum::<f64>() - 1.0).abs() < 1e-5);
    let top = session.top_logprobs(3).unwrap();
    assert_eq!(top.len(), 3);
    assert!(top.iter().all(|(token, logprob)| logprobs[*token as usize] == *logprob));
    assert_eq!(session.top_logprobs(usize::MAX).unwrap().len(), logprobs.len());

    let mut sampler = Sampler::new(&model, &SamplerOptions::new()).unwrap();
    let best = sampler.sample(&session, 3).unwrap();
    assert_eq!((best.token, best.logprob), top[0]);
    let logits = session.logits().unwrap();
    assert_eq!(sampler.sample_logits(logits, &[1, 2, 3], 3).unwrap(), best);
    assert_eq!(sampler.sample_logits(&logits[1..], &[], 0).unwrap_err().kind(), ErrorKind::Invalid);

    let never = SamplerOptions::new().bias([(best.token, f32::NEG_INFINITY)]);
    assert_eq!(Sampler::new(&model, &never).unwrap().sample(&session, 3).unwrap().token, top[1].0);
    let drawn = |seed| {
        let options = SamplerOptions::new().temperature(2.0).top_k(50).top_p(0.9).min_p(0.001).seed(seed);
        let options = options.repetition_penalty(1.1).presence_penalty(0.1).frequency_penalty(0.1);
        Sampler::new(&model, &options).unwrap().sample(&session, 3).unwrap().token
    };
    assert!((0..20).any(|seed| drawn(seed) != drawn(0)));
    assert!((0..20).all(|seed| drawn(seed) == drawn(seed)));
    let wrong = SamplerOptions::new().temperature(-1.0);
    assert_eq!(Sampler::new(&model, &wrong).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn embeddings() {
    let model = nano();
    let mut session = session_of(&model);
    let mean = session.embed(&[1, 2, 3], Pooling::Mean, true, None).unwrap();
    assert_eq!(mean.len() as u64, model.info().hidden_size);
    assert!((mean.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    let last = session.embed(&[1, 2, 3], Pooling::Last, false, None).unwrap();
    session.sync(&[1, 2, 3]).unwrap();
    assert_eq!(session.hidden().unwrap(), last);
    assert_eq!(session.embed(&[], Pooling::Mean, true, None).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn stats() {
    let model = nano();
    let mut session = session_of(&model);
    session.append(&[1, 2, 3]).unwrap();
    session.append(&[4]).unwrap();
    session.sync(&[1, 2, 3, 4, 5]).unwrap();
    let stats = session.stats().unwrap();
    assert_eq!((stats.n_tokens, stats.n_prompt_computed, stats.n_decode_computed, stats.n_reused), (5, 3, 2, 4));
    assert!(stats.prompt_time.as_nanos() > 0 && stats.decode_time.as_nanos() > 0 && stats.page_bytes > 0);
}
