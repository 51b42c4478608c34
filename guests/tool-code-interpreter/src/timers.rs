//! The clock and the timers of the code. Nothing really waits: when only timers are left, the clock
//! is moved to the next timer, so that code with pauses ends as early as possible.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use boa_engine::context::Clock;
use boa_engine::context::time::JsInstant;
use boa_engine::object::builtins::JsFunction;
use boa_engine::{Context, JsNativeError, JsResult, JsString, JsValue, NativeFunction};

/// The largest number of pending timers.
const TIMERS_MAX: usize = 10_000;

/// A clock that starts at the time of the call. It advances with the machine's clock and by the
/// skipped waits of timers.
#[derive(Debug)]
pub(crate) struct CallClock {
    epoch_ms: u64,
    begin: Instant,
    skipped_ms: Cell<u64>,
}

impl CallClock {
    pub(crate) fn new(epoch_ms: u64) -> Self {
        Self { epoch_ms, begin: Instant::now(), skipped_ms: Cell::new(0) }
    }

    fn elapsed_ms(&self) -> u64 {
        let real = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        real.saturating_add(self.skipped_ms.get())
    }

    fn skip_to(&self, due_ms: u64) {
        let missing = due_ms.saturating_sub(self.elapsed_ms());
        self.skipped_ms.set(self.skipped_ms.get().saturating_add(missing));
    }
}

impl Clock for CallClock {
    fn now(&self) -> JsInstant {
        let elapsed = Duration::from_millis(self.elapsed_ms());
        JsInstant::new(elapsed.as_secs(), elapsed.subsec_nanos())
    }

    fn system_time_millis(&self) -> i64 {
        i64::try_from(self.epoch_ms.saturating_add(self.elapsed_ms())).unwrap_or(i64::MAX)
    }
}

/// A callback that runs later.
struct Timer {
    callback: JsFunction,
    arguments: Vec<JsValue>,
}

/// The timers of one call. Clones share them.
#[derive(Clone)]
pub(crate) struct Timers {
    clock: Rc<CallClock>,
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    /// Ordered by due time, then by id.
    waiting: BTreeMap<(u64, u32), Timer>,
    last_id: u32,
}

impl Timers {
    /// Defines `setTimeout` and `clearTimeout` in the global scope.
    pub(crate) fn install(context: &mut Context, clock: Rc<CallClock>) -> JsResult<Self> {
        let timers = Self { clock, state: Rc::default() };
        context.insert_data(timers.clone());
        let functions: [(&str, usize, _); 2] = [
            ("setTimeout", 2, NativeFunction::from_fn_ptr(set)),
            ("clearTimeout", 1, NativeFunction::from_fn_ptr(clear)),
        ];
        for (name, length, function) in functions {
            context.register_global_callable(JsString::from(name), length, function)?;
        }
        Ok(timers)
    }

    /// Runs the timer that is due next, if there is one.
    pub(crate) fn fire(&self, context: &mut Context) -> Option<JsResult<JsValue>> {
        let ((due_ms, _), timer) = self.state.borrow_mut().waiting.pop_first()?;
        self.clock.skip_to(due_ms);
        Some(timer.callback.call(&JsValue::undefined(), &timer.arguments, context))
    }

    fn add(&self, delay_ms: u64, timer: Timer) -> Option<u32> {
        let mut state = self.state.borrow_mut();
        if state.waiting.len() >= TIMERS_MAX {
            return None;
        }
        state.last_id = state.last_id.wrapping_add(1);
        let id = state.last_id;
        state.waiting.insert((self.clock.elapsed_ms().saturating_add(delay_ms), id), timer);
        Some(id)
    }

    fn remove(&self, id: u32) {
        self.state.borrow_mut().waiting.retain(|(_, known), _| *known != id);
    }
}

fn set(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let callback = arguments.first().and_then(JsValue::as_object).and_then(JsFunction::from_object);
    let callback =
        callback.ok_or_else(|| JsNativeError::typ().with_message("setTimeout takes a function"))?;
    let delay_ms = match arguments.get(1) {
        // NaN and negative numbers mean no delay; the cast saturates.
        Some(delay) => delay.to_number(context)?.max(0.0) as u64,
        None => 0,
    };
    let timer = Timer { callback, arguments: arguments.get(2..).unwrap_or_default().to_vec() };
    let added = context.get_data::<Timers>().and_then(|timers| timers.add(delay_ms, timer));
    let id = added.ok_or_else(|| JsNativeError::range().with_message("there are too many timers"))?;
    Ok(JsValue::from(id))
}

fn clear(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    if let (Some(id), Some(timers)) =
        (arguments.first().and_then(JsValue::as_number), context.get_data::<Timers>())
    {
        timers.remove(id as u32);
    }
    Ok(JsValue::undefined())
}
