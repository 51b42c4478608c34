// Included by the tests of each crate's `fuzzing.rs`: a fuzz target's function runs over its corpus. With
// `COFFERDAM_FUZZ=SECONDS` it runs for that long over inputs that are changed at random too, on any toolchain and
// without looking at what the code covers. `COFFERDAM_SEED=N` repeats a run.

/// Calls a target with each file of its corpus, then with changed ones.
fn each_of(target: &str, run: impl Fn(&[u8])) {
    let folder = format!("{}/../../tests/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read(file.unwrap().path()).unwrap();
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut inputs: Vec<Vec<u8>> = files.map(read).collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{folder} is empty");
    inputs.iter().for_each(|input| run(input));
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(seconds) = number("COFFERDAM_FUZZ") else { return };
    let started = std::time::Instant::now();
    let (mut state, mut count) = (number("COFFERDAM_SEED").unwrap_or(1), 0_u64);
    while started.elapsed().as_secs() < seconds {
        let input = changed(&inputs, &mut state);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&input))).is_err() {
            panic!("{target}, run {count}: {}", input.escape_ascii());
        }
        count += 1;
    }
    eprintln!("{target}: {count} runs in {seconds} s");
}

/// One of the inputs after a few changes: bytes replaced, removed, repeated, or taken from another input.
fn changed(inputs: &[Vec<u8>], state: &mut u64) -> Vec<u8> {
    const WORDS: [&[u8]; 12] =
        [b"\"", b"{", b"}", b"[", b"\\", b"\n", b"%2f", b"{{secret:", b"\xff", b"\\ud800", b"null", b"-1e999"];
    let mut below = |limit: usize| {
        // SplitMix64.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit.max(1)).unwrap()).unwrap()
    };
    let mut input = inputs[below(inputs.len())].clone();
    for _ in 0..=below(6) {
        let at = below(input.len() + 1);
        let end = (at + below(8)).min(input.len());
        match below(7) {
            0 => input.splice(at..end, []).for_each(drop),
            1 => input.splice(at..end, [u8::try_from(below(256)).unwrap()]).for_each(drop),
            2 => input.splice(at..at, WORDS[below(WORDS.len())].iter().copied()).for_each(drop),
            3 => {
                let other = &inputs[below(inputs.len())];
                let from = below(other.len() + 1);
                let to = (from + below(64)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied()).for_each(drop);
            }
            4 => {
                let copy = input[at..end].repeat(1 + below(4));
                input.splice(at..at, copy).for_each(drop);
            }
            5 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << below(8)),
            _ if below(8) == 0 => input.truncate(at),
            _ => input.iter_mut().skip(at).take(1).for_each(|byte| *byte = byte.wrapping_add(1)),
        }
    }
    input
}
