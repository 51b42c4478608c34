//! The object `console`: it collects what the code prints, up to a limit.

use std::cell::RefCell;
use std::rc::Rc;

use boa_engine::object::ObjectInitializer;
use boa_engine::property::Attribute;
use boa_engine::{Context, JsResult, JsString, JsValue, NativeFunction, js_string};

use crate::inspect::inspect;

/// The longest output of one call, in bytes.
pub(crate) const LOGS_BYTES_MAX: usize = 100_000;
const CUT: &str = "\n[What was printed after this was left out.]";

/// The output so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs(Rc<RefCell<Printed>>);

#[derive(Debug, Default)]
struct Printed {
    text: String,
    is_cut: bool,
}

impl Logs {
    fn print(&self, line: &str) {
        let mut printed = self.0.borrow_mut();
        if printed.is_cut {
            return;
        }
        let room = LOGS_BYTES_MAX - printed.text.len();
        if line.len() < room {
            printed.text.push_str(line);
            printed.text.push('\n');
            return;
        }
        printed.is_cut = true;
        printed.text.push_str(line.get(..line.floor_char_boundary(room)).unwrap_or_default());
    }

    /// The number of bytes that still fit.
    fn room(&self) -> usize {
        let printed = self.0.borrow();
        if printed.is_cut { 0 } else { LOGS_BYTES_MAX - printed.text.len() }
    }

    /// Takes the whole output.
    pub(crate) fn take(&self) -> String {
        let printed = std::mem::take(&mut *self.0.borrow_mut());
        if printed.is_cut { printed.text + CUT } else { printed.text }
    }
}

/// Defines `console` in the global scope.
pub(crate) fn install(context: &mut Context, logs: &Logs) -> JsResult<()> {
    context.insert_data(logs.clone());
    let mut console = ObjectInitializer::new(context);
    for name in ["log", "info", "debug", "warn", "error", "dir", "table", "trace"] {
        console.function(NativeFunction::from_fn_ptr(print), JsString::from(name), 0);
    }
    let console = console.build();
    context.register_global_property(js_string!("console"), console, Attribute::all())
}

fn print(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let Some(logs) = context.get_data::<Logs>().cloned() else { return Ok(JsValue::undefined()) };
    let mut line = String::new();
    for argument in arguments {
        let room = logs.room().saturating_sub(line.len());
        if room == 0 {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        match argument.as_string() {
            Some(text) => line.push_str(&text.to_std_string_lossy()),
            None => line.push_str(&inspect(argument, context, room)),
        }
    }
    logs.print(&line);
    Ok(JsValue::undefined())
}
