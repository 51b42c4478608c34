//! The engine `middle-out`: the items farthest from both ends are dropped first.

use serde::Deserialize;
use serde_json::{Value, from_slice, to_vec};

use crate::count;
use crate::units::{Unit, units};

/// The part of a request that is enough to find out whether it may be too long.
#[derive(Deserialize)]
struct Head {
    max_output_tokens: Option<u32>,
}

/// The request with its middle dropped so that it fits. `None` when it already fits or has no middle.
/// If dropping the whole middle is not enough, the request is returned without its middle: the count
/// is rough, so the provider decides.
pub(crate) fn compressed(request: &[u8], context_length: u32) -> Option<Vec<u8>> {
    let head: Head = from_slice(request).ok()?;
    let room = u64::from(context_length.saturating_sub(head.max_output_tokens.unwrap_or(0)));
    // A request has no more characters than bytes, so most requests end here without a parse.
    if (request.len() as u64).div_ceil(4) <= room {
        return None;
    }
    let mut request: Value = from_slice(request).ok()?;
    let frame = count::frame(&request);
    let items = request.get_mut("input")?.as_array_mut()?;
    let units = units(items);
    let stays = what_stays(&units, items, room.saturating_sub(frame));
    if stays.iter().all(|stays| *stays) {
        return None;
    }
    let mut stays = stays.into_iter();
    items.retain(|_| stays.next().unwrap_or(true));
    to_vec(&request).ok()
}

/// For each item, whether it stays. The dropped units grow from the centre to both sides; units that
/// must be kept are skipped.
fn what_stays(units: &[Unit], items: &[Value], room: u64) -> Vec<bool> {
    let tokens =
        |unit: &Unit| items.get(unit.items.clone()).unwrap_or_default().iter().map(count::item).sum::<u64>();
    let mut stays = vec![true; items.len()];
    let mut total: u64 = units.iter().map(tokens).sum();
    let middle: Vec<&Unit> = units.iter().filter(|unit| !unit.keep).collect();
    let mut outwards: Vec<(usize, &Unit)> = middle
        .iter()
        .enumerate()
        .map(|(index, unit)| ((2 * index + 1).abs_diff(middle.len()), *unit))
        .collect();
    outwards.sort_by_key(|(off, _)| *off);
    for (_, unit) in outwards {
        if total <= room {
            break;
        }
        total = total.saturating_sub(tokens(unit));
        if let Some(gone) = stays.get_mut(unit.items.clone()) {
            gone.fill(false);
        }
    }
    stays
}
