//! Recorded answers of providers, cut off and split. An answer that was cut off must not look
//! complete, and how the network splits it must not change it.

use cofferdam_engine::Framer;
use cofferdam_runtime::manifest::Framing;
use cofferdam_runtime::wire::{Event, Failure, Frame, Prepared, ResponseHead};
use cofferdam_runtime::{CallError, ProviderInstance};
use serde_json::{Map, Value};

use super::Checked;
use crate::plugin_kit::cases::{Case, CaseInput, ProviderInput, ProviderRequest, UpstreamAnswer};
use crate::plugin_kit::runs::{Bench, Trouble, as_served, assembled, context, events_of_stream};

/// Number of places at which one answer is cut, and of ways in which it is split.
const CUTS_MAX: usize = 128;
const SPLITS: u64 = 16;
/// Number of reads into which an answer is split, at most.
const READS_MAX: usize = 64;

/// A recorded answer to a request.
pub(super) struct RecordedAnswer<'a> {
    bench: &'a Bench,
    case: &'a Case,
    input: &'a ProviderInput,
    request: String,
    bytes: &'a [u8],
    pub(super) streamed: bool,
    framing: Framing,
}

pub(super) async fn check_cuts(all: &[RecordedAnswer<'_>]) -> Checked {
    for recorded in all {
        let about =
            |place: &str, problem: &str| format!("the case `{}`, {place}: {problem}", recorded.case.name);
        let whole = recorded.whole().await.map_err(|trouble| about("whole", &String::from(trouble)))?;
        for cut in recorded.cuts() {
            let place = format!("cut after {cut} of {} bytes", recorded.bytes.len());
            let answer = recorded.cut(cut).await.map_err(|trouble| about(&place, &String::from(trouble)))?;
            let is_finished = answer.contains_key("finish");
            if is_finished && answer.get("items") != whole.get("items") {
                return Err(about(&place, "it looks complete, but items of the whole answer are missing"));
            }
        }
    }
    Ok(())
}

pub(super) async fn check_splits(all: &[RecordedAnswer<'_>]) -> Checked {
    for recorded in all.iter().filter(|recorded| recorded.streamed) {
        let name = &recorded.case.name;
        let about = |place: &str, problem: &str| format!("the case `{name}`, {place}: {problem}");
        let whole = recorded.whole().await.map_err(|trouble| about("whole", &String::from(trouble)))?;
        for seed in 0..SPLITS {
            let place = format!("split {seed}");
            let split =
                recorded.split(seed).await.map_err(|trouble| about(&place, &String::from(trouble)))?;
            if split != whole {
                let (split, whole) = (Value::Object(split), Value::Object(whole));
                return Err(about(&place, &format!("the answer is {split}, read at once it is {whole}")));
            }
        }
    }
    Ok(())
}

/// The recorded answers of the cases, without errors.
pub(super) fn all<'a>(bench: &'a Bench, cases: &'a [Case]) -> impl Iterator<Item = RecordedAnswer<'a>> {
    let framing = bench.plugin.manifest().provider.as_ref().map(|provider| provider.framing);
    cases.iter().filter_map(move |case| {
        let CaseInput::Provider(input) = &case.input else { return None };
        let ProviderRequest::Responses(request) = &input.request else { return None };
        let (bytes, streamed) = match input.answer.as_ref()? {
            UpstreamAnswer::Stream(stream) => (stream.as_slice(), true),
            UpstreamAnswer::Whole(reply) if (200..300).contains(&reply.status) => {
                (reply.body.as_slice(), false)
            }
            // Of frames it is not known how their bytes were.
            UpstreamAnswer::Whole(_) | UpstreamAnswer::Fed(_) => return None,
        };
        let (request, framing) = (as_served(request).to_string(), framing.unwrap_or_default());
        Some(RecordedAnswer { bench, case, input, request, bytes, streamed, framing })
    })
}

impl RecordedAnswer<'_> {
    async fn whole(&self) -> Result<Map<String, Value>, Trouble> {
        self.read(&[self.bytes]).await
    }

    /// What the plugin makes of the beginning of the answer.
    async fn cut(&self, bytes: usize) -> Result<Map<String, Value>, Trouble> {
        self.read(&[self.bytes.get(..bytes).unwrap_or_default()]).await
    }

    async fn split(&self, seed: u64) -> Result<Map<String, Value>, Trouble> {
        let mut numbers = Numbers(seed);
        let (mut reads, mut rest) = (Vec::new(), self.bytes);
        while !rest.is_empty() && reads.len() < READS_MAX {
            // Short reads and long ones.
            let longest = 1 << (numbers.next() % 12);
            let (read, more) = rest.split_at(rest.len().min(1 + numbers.below(longest)));
            reads.push(read);
            rest = more;
        }
        reads.push(rest);
        self.read(&reads).await
    }

    /// For a stream the end of each event, else places anywhere.
    fn cuts(&self) -> Vec<usize> {
        let ends = self.bytes.iter().enumerate().filter(|(_, byte)| self.streamed && **byte == b'\n');
        let mut places: Vec<usize> = ends.map(|(index, _)| index + 1).collect();
        if places.is_empty() {
            let mut numbers = Numbers(self.bytes.len() as u64);
            places.extend((0..SPLITS).map(|_| numbers.below(self.bytes.len())));
        }
        places.retain(|place| *place < self.bytes.len());
        let step = places.len().div_ceil(CUTS_MAX).max(1);
        [0].into_iter().chain(places.into_iter().step_by(step)).collect()
    }

    /// Prepares the request in a new instance, and reads the answer in these pieces.
    async fn read(&self, reads: &[&[u8]]) -> Result<Map<String, Value>, Trouble> {
        let plugin = self.bench.plugin_for(self.case);
        let mut instance = plugin.open_provider(&context(self.case.now_ms, self.case.seed)).await?;
        let prepared = instance.prepare(self.request.as_bytes(), &self.input.target).await?;
        if !matches!(prepared, Ok(Prepared::Upstream(_))) {
            let rule = "`prepare` writes no request of whose answer this could be";
            return Err(Trouble::Rule(rule.to_owned()));
        }
        assembled(self.events(&mut instance, reads).await?)
    }

    async fn events(
        &self,
        instance: &mut ProviderInstance,
        reads: &[&[u8]],
    ) -> Result<Result<Vec<Event>, Failure>, CallError> {
        let head = ResponseHead { status: 200, headers: Vec::new(), streamed: self.streamed };
        if !self.streamed {
            return instance.decode(&head, Frame { name: String::new(), data: reads.concat() }).await;
        }
        let (mut framer, mut groups) = (Framer::new(self.framing), Vec::new());
        for read in reads {
            let mut frames = Vec::new();
            // The length of the file is limited far below that of a frame.
            drop(framer.push(read, &mut frames));
            groups.push(frames);
        }
        let mut last = Vec::new();
        drop(framer.end(&mut last));
        groups.push(last);
        events_of_stream(instance, &head, groups.iter().map(Vec::as_slice)).await
    }
}

/// Numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to below `end`.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }
}
