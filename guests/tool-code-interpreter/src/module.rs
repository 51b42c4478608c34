//! The value of code that awaits at top level. Such code is a module, and a module has no value. Its
//! last expression is therefore exported as the default. This changes neither the behaviour of
//! the code nor its line numbers.

use std::ops::ControlFlow;

use boa_engine::ast::scope::Scope;
use boa_engine::ast::visitor::{VisitWith, Visitor};
use boa_engine::ast::{Expression, ModuleItem, Position, Spanned, Statement, StatementListItem};
use boa_engine::interner::Interner;
use boa_engine::parser::{Parser, Source};

/// The code with its last expression as the default export. `None` when the code is not a module, or
/// when its last statement is not an expression.
pub(crate) fn exporting(code: &str) -> Option<String> {
    let mut parser = Parser::new(Source::from_bytes(code));
    let module = parser.parse_module(&Scope::new_global(), &mut Interner::default()).ok()?;
    let last = module.items().items().iter().rev().find(|item| !is_without_value(item))?;
    let ModuleItem::StatementListItem(StatementListItem::Statement(statement)) = last else { return None };
    let Statement::Expression(expression) = &**statement else { return None };
    let extent = Extent::of(expression);
    let (start, end) = (offset(code, extent.start)?, offset(code, extent.end)?);
    let (before, inside, after) = (code.get(..start)?, code.get(start..end)?, code.get(end..)?);
    // The comma operator keeps an anonymous function from getting the name `default`.
    Some(format!("{before}export default (0, {inside}){after}"))
}

/// Whether an item is a declaration or an empty statement, which do not change the value.
fn is_without_value(item: &ModuleItem) -> bool {
    match item {
        ModuleItem::StatementListItem(StatementListItem::Declaration(_)) => true,
        ModuleItem::StatementListItem(StatementListItem::Statement(statement)) => {
            matches!(**statement, Statement::Empty | Statement::Var(_))
        }
        _ => false,
    }
}

/// The start and the end of an expression. The parser's own span of a call or a tagged template
/// begins at the arguments, so the spans of all inner expressions are joined.
struct Extent {
    start: Position,
    end: Position,
}

impl Extent {
    fn of(expression: &Expression) -> Self {
        let span = expression.span();
        let mut extent = Self { start: span.start(), end: span.end() };
        // This visitor never breaks.
        let _ = extent.visit_expression(expression);
        extent
    }
}

impl<'ast> Visitor<'ast> for Extent {
    type BreakTy = ();

    fn visit_expression(&mut self, expression: &'ast Expression) -> ControlFlow<()> {
        let span = expression.span();
        self.start = self.start.min(span.start());
        self.end = self.end.max(span.end());
        expression.visit_with(self)
    }
}

/// The byte offset of a position. Columns count code points, from 1.
fn offset(code: &str, position: Position) -> Option<usize> {
    let (mut line, mut column) = (1, 1);
    let mut letters = code.char_indices().peekable();
    while (line, column) != (position.line_number(), position.column_number()) {
        let (_, letter) = letters.next()?;
        let is_first_of_two = letter == '\r' && letters.peek().is_some_and(|(_, next)| *next == '\n');
        if matches!(letter, '\n' | '\r' | '\u{2028}' | '\u{2029}') && !is_first_of_two {
            (line, column) = (line + 1, 1);
        } else {
            column += 1;
        }
    }
    Some(letters.peek().map_or(code.len(), |(at, _)| *at))
}
