//! Interprets the operators of a page that show text. All other operators are skipped.

use hayro_font::Font;
use hayro_font::kurbo::{Affine, Point};
use hayro_syntax::content::TypedIter;
use hayro_syntax::content::ops::TypedInstruction as Op;
use hayro_syntax::object::dict::keys::{FORM, MATRIX, RESOURCES, SUBTYPE};
use hayro_syntax::object::{Dict, Name, Number, Object, Stream};
use hayro_syntax::page::{Page, Resources};

use crate::fonts::{Fonts, Shown, codes};
use crate::layout::{Layout, Position, unit};

/// The largest number of operators and shown characters in a whole document.
const STEPS_MAX: u32 = 4_000_000;
/// The largest number of forms that are drawn (each is unpacked again), and their deepest nesting.
const FORMS_MAX: u32 = 2_000;
const FORMS_DEPTH_MAX: u32 = 8;
/// The largest number of saved states.
const STATES_MAX: usize = 64;

/// The remaining budget of a document. It is needed because forms that draw each other multiply.
pub(crate) struct Budget {
    steps_left: u32,
    forms_left: u32,
    forms_skipped: bool,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self::of_steps(STEPS_MAX)
    }

    pub(crate) fn of_steps(steps: u32) -> Self {
        Self { steps_left: steps, forms_left: FORMS_MAX, forms_skipped: false }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.steps_left == 0
    }

    /// Whether a part was not read. After a form that is not drawn, the reading goes on.
    pub(crate) fn has_skipped(&self) -> bool {
        self.is_spent() || self.forms_skipped
    }

    fn step(&mut self) -> bool {
        self.steps_left = self.steps_left.saturating_sub(1);
        self.steps_left > 0
    }

    /// Whether a form at this depth may be drawn.
    fn form(&mut self, depth: u32) -> bool {
        let allowed = self.forms_left > 0 && depth < FORMS_DEPTH_MAX;
        if allowed {
            self.forms_left -= 1;
        } else {
            self.forms_skipped = true;
        }
        allowed
    }
}

/// Reads the text of one page.
pub(crate) fn page<'a>(page: &Page<'a>, fonts: &Fonts<'a>, budget: &mut Budget, layout: &mut Layout) {
    let mut reader = Reader { fonts, budget, layout, depth: 0 };
    reader.run(page.typed_operations(), page.resources(), State::new(Affine::IDENTITY));
}

struct Reader<'r, 'a> {
    fonts: &'r Fonts<'a>,
    budget: &'r mut Budget,
    layout: &'r mut Layout,
    depth: u32,
}

/// The part of the graphics state that places text.
#[derive(Clone)]
struct State<'a> {
    page: Affine,
    font: Option<Font<'a>>,
    size: f64,
    character_space: f64,
    word_space: f64,
    scale: f64,
    leading: f64,
    rise: f64,
    matrix: Affine,
    line: Affine,
}

impl State<'_> {
    fn new(page: Affine) -> Self {
        Self {
            page,
            font: None,
            size: 1.0,
            character_space: 0.0,
            word_space: 0.0,
            scale: 1.0,
            leading: 0.0,
            rise: 0.0,
            matrix: Affine::IDENTITY,
            line: Affine::IDENTITY,
        }
    }

    fn next_line(&mut self, x: f64, y: f64) {
        self.line *= Affine::translate((x, y));
        self.matrix = self.line;
    }

    fn set_matrix(&mut self, numbers: [f64; 6]) {
        self.line = Affine::new(numbers);
        self.matrix = self.line;
    }

    /// Moves the position by a distance in the directions of the text matrix.
    fn advance(&mut self, right: f64, up: f64) {
        self.matrix *= Affine::translate((right, up));
    }

    fn position(&self) -> Position {
        let whole = self.page * self.matrix;
        let at = whole * Point::new(0.0, self.rise);
        // The units of the text on the page: one along the text, and one upwards.
        let [a, b, across, up, _, _] = whole.as_coeffs();
        // A negative size or scale turns the text around, as a matrix can.
        let sign = self.size.signum() * self.scale.signum();
        Position {
            x: at.x,
            y: at.y,
            size: self.size.abs() * across.hypot(up),
            right: unit(a * sign, b * sign),
        }
    }
}

impl<'a> Reader<'_, 'a> {
    fn run(&mut self, mut operators: TypedIter<'_>, resources: &Resources<'a>, first: State<'a>) {
        let mut state = first;
        let mut saved = Vec::new();
        while let Some(operator) = operators.next() {
            if !self.budget.step() || self.layout.is_full() {
                return;
            }
            match operator {
                Op::SaveState(_) if saved.len() < STATES_MAX => saved.push(state.clone()),
                Op::RestoreState(_) => state = saved.pop().unwrap_or(state),
                Op::Transform(t) => state.page *= matrix([t.0, t.1, t.2, t.3, t.4, t.5]),
                Op::TextFont(font) => {
                    state.font =
                        resources.get_font(font.0).and_then(|dictionary| self.fonts.load(&dictionary));
                    state.size = font.1.as_f64();
                }
                Op::XObject(name) => self.form(name.0, resources, &state),
                other => self.text(&other, &mut state),
            }
        }
    }

    fn text(&mut self, operator: &Op<'_, '_>, state: &mut State<'a>) {
        match operator {
            Op::BeginText(_) => state.set_matrix(Affine::IDENTITY.as_coeffs()),
            Op::CharacterSpacing(space) => state.character_space = space.0.as_f64(),
            Op::WordSpacing(space) => state.word_space = space.0.as_f64(),
            Op::HorizontalScaling(scale) => state.scale = scale.0.as_f64() / 100.0,
            Op::TextLeading(leading) => state.leading = leading.0.as_f64(),
            Op::TextRise(rise) => state.rise = rise.0.as_f64(),
            Op::NextLine(by) => state.next_line(by.0.as_f64(), by.1.as_f64()),
            Op::NextLineAndSetLeading(by) => {
                state.leading = -by.1.as_f64();
                state.next_line(by.0.as_f64(), by.1.as_f64());
            }
            Op::NextLineUsingLeading(_) => state.next_line(0.0, -state.leading),
            Op::SetTextMatrix(t) => {
                state.set_matrix([t.0, t.1, t.2, t.3, t.4, t.5].map(|number| number.as_f64()))
            }
            Op::ShowText(text) => self.show(text.0.as_bytes(), state),
            Op::NextLineAndShowText(text) => {
                state.next_line(0.0, -state.leading);
                self.show(text.0.as_bytes(), state);
            }
            Op::ShowTextWithParameters(text) => {
                state.word_space = text.0.as_f64();
                state.character_space = text.1.as_f64();
                state.next_line(0.0, -state.leading);
                self.show(text.2.as_bytes(), state);
            }
            Op::ShowTexts(parts) => parts.0.iter().for_each(|part| self.show_part(&part, state)),
            _ => {}
        }
    }

    /// Shows a string, or moves the position by a number.
    fn show_part(&mut self, part: &Object<'_>, state: &mut State<'a>) {
        match part {
            Object::String(text) => self.show(text.as_bytes(), state),
            Object::Number(by) => adjust(state, by.as_f64()),
            _ => {}
        }
    }

    fn show(&mut self, bytes: &[u8], state: &mut State<'a>) {
        let Some(font) = state.font.clone() else { return };
        let horizontal = font.is_horizontal();
        for shown in codes(&font, bytes) {
            if !self.budget.step() || self.layout.is_full() {
                return;
            }
            let position = state.position();
            self.advance(&shown, horizontal, state);
            if let Some(text) = &shown.text {
                self.layout.show(text, position, state.position());
            }
        }
    }

    fn advance(&self, shown: &Shown, horizontal: bool, state: &mut State<'a>) {
        let word_space = if shown.is_space { state.word_space } else { 0.0 };
        let space = state.character_space + word_space;
        if horizontal {
            state.advance((shown.advance.0 / 1000.0 * state.size + space) * state.scale, 0.0);
        } else {
            state.advance(0.0, shown.advance.1 / 1000.0 * state.size + space);
        }
    }

    /// Draws a form with its own resources, or with the resources around it.
    fn form(&mut self, name: &Name<'_>, resources: &Resources<'a>, state: &State<'a>) {
        let Some(stream) = resources.get_x_object(name) else { return };
        if !is_form(&stream) || !self.budget.form(self.depth) {
            return;
        }
        let Ok(content) = stream.decoded_data() else { return };
        let own = stream.dict().get::<Dict<'_>>(RESOURCES).map(Resources::new);
        let placed = stream.dict().get::<[f64; 6]>(MATRIX).map_or(Affine::IDENTITY, Affine::new);
        let inside = State { page: state.page * placed, ..state.clone() };
        self.depth += 1;
        self.run(TypedIter::new(&content), own.as_ref().unwrap_or(resources), inside);
        self.depth -= 1;
    }
}

fn adjust(state: &mut State<'_>, thousandths: f64) {
    let by = -thousandths / 1000.0 * state.size;
    if state.font.as_ref().is_none_or(|font| font.is_horizontal()) {
        state.advance(by * state.scale, 0.0);
    } else {
        state.advance(0.0, by);
    }
}

fn is_form(stream: &Stream<'_>) -> bool {
    stream.dict().get::<Name<'_>>(SUBTYPE).is_some_and(|subtype| subtype.as_ref() == FORM)
}

fn matrix(numbers: [Number; 6]) -> Affine {
    Affine::new(numbers.map(|number| number.as_f64()))
}
