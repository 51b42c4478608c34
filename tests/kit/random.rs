//! Reproducible random numbers.

/// A generator (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}

/// The seed of this run: `COFFERDAM_SEED`, else one from the clock. It is printed, so that a
/// failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("COFFERDAM_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or_else(|| {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        time.as_nanos() as u64
    });
    println!("COFFERDAM_SEED={seed}");
    seed
}

/// How many repetitions to run: few by default, all with `COFFERDAM_FAULTS=all`, and N with
/// `COFFERDAM_FAULTS=N` if N is between them.
pub fn count(few: usize, all: usize) -> usize {
    match std::env::var("COFFERDAM_FAULTS").as_deref() {
        Ok("all") => all,
        Ok(other) => {
            let number: usize =
                other.parse().unwrap_or_else(|_| panic!("COFFERDAM_FAULTS={other}: `all` or a number"));
            number.clamp(few, all)
        }
        Err(_) => few,
    }
}
