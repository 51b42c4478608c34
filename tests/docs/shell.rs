//! Blocks of a shell: which commands they have, and how the program is called in them.

use cofferdam::cli::Cli;
use std::process::Command;

/// One command of a block.
pub(super) struct Step {
    /// With its continuation lines.
    pub(super) command: String,
    /// The lines that a page shows below it.
    pub(super) expected: Vec<String>,
}

/// The commands of a block in which `$ ` begins a command and all other lines are output. A command goes on for
/// as long as the shell finds it incomplete.
pub(super) fn steps(block: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (_, Some(step)) if step.expected.is_empty() && !is_complete(&step.command) => {
                step.command.push('\n');
                step.command.push_str(line);
            }
            (Some(command), _) => steps.push(Step { command: command.to_owned(), expected: Vec::new() }),
            (None, Some(step)) => step.expected.push(line.to_owned()),
            (None, None) => return Err(format!("output before the first command: {line}")),
        }
    }
    match steps.last() {
        None => Err("no command: each begins with `$ `".to_owned()),
        Some(step) if !is_complete(&step.command) => Err(format!("not complete: {}", step.command)),
        Some(_) => Ok(steps),
    }
}

/// Whether a shell would run this, and not ask for further lines.
fn is_complete(command: &str) -> bool {
    let checked = Command::new("bash").args(["-n", "-c", command]).output().unwrap();
    // A here-document without its end is a warning only.
    !command.ends_with('\\') && checked.status.success() && checked.stderr.is_empty()
}

/// What is wrong with a call of the program within a command, if anything is.
pub(super) fn mistake(command: &str) -> Option<String> {
    use clap::Parser;
    use clap::error::ErrorKind;
    for words in calls(command) {
        let Err(error) = Cli::try_parse_from(&words) else { continue };
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {}
            // `N` or `$KEY` stands for a value.
            ErrorKind::ValueValidation | ErrorKind::InvalidValue
                if words.iter().any(|word| is_placeholder(word)) => {}
            _ => return Some(error.to_string()),
        }
    }
    None
}

fn is_placeholder(word: &str) -> bool {
    word.contains('$')
        || (!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
}

/// Words before a command that do not change which one it is.
const BEFORE: [&str; 10] = ["sudo", "exec", "time", "nohup", "if", "then", "while", "do", "else", "!"];

/// The calls of `cofferdam` in a command, each as its words.
fn calls(command: &str) -> Vec<Vec<String>> {
    let mut commands = split(command);
    for words in &mut commands {
        let is_before = |word: &String| {
            let (name, rest) = word.split_once('=').unwrap_or((word, ""));
            BEFORE.contains(&word.as_str())
                || (word.len() > name.len() + rest.len()
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        };
        let begin = words.iter().take_while(|word| is_before(word)).count();
        words.drain(..begin);
    }
    commands.retain(|words| {
        words.first().is_some_and(|program| program == "cofferdam" || program.ends_with("/cofferdam"))
    });
    commands
}

/// Simple commands and their words, without redirections.
fn split(command: &str) -> Vec<Vec<String>> {
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    let mut word: Option<String> = None;
    // The quote that is open, and those around the substitutions that are open.
    let (mut quote, mut around): (Option<char>, Vec<Option<char>>) = (None, Vec::new());
    let mut letters = command.chars().peekable();
    while let Some(letter) = letters.next() {
        let begins_substitution = letter == '$' && quote != Some('\'') && letters.peek() == Some(&'(');
        match (letter, quote) {
            _ if begins_substitution => {
                letters.next();
                around.push(quote.take());
                word.get_or_insert_default().push('$');
                commands.last_mut().unwrap().extend(word.take());
                commands.push(Vec::new());
            }
            (_, Some(open)) if letter == open => quote = None,
            ('\\', None | Some('"')) => match letters.next() {
                None | Some('\n') => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            (_, Some(_)) => word.get_or_insert_default().push(letter),
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => while letters.next_if(|letter| *letter != '\n').is_some() {},
            ('>' | '<', None) => {
                // `2>` is no word; what follows is the name of a file.
                word.take_if(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
                commands.last_mut().unwrap().extend(word.take());
                commands.push(Vec::new());
            }
            (' ' | '\t', None) => commands.last_mut().unwrap().extend(word.take()),
            ('|' | ';' | '&' | '\n' | '(' | ')', None) => {
                commands.last_mut().unwrap().extend(word.take());
                commands.push(Vec::new());
                if letter == ')' {
                    quote = around.pop().flatten();
                }
            }
            (_, None) => word.get_or_insert_default().push(letter),
        }
    }
    commands.last_mut().unwrap().extend(word);
    commands
}

#[test]
fn calls_of_the_program_are_found_and_read() {
    let words = |command| calls(command).into_iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        words("printf x | cofferdam secret put a --host \"b c\""),
        ["cofferdam secret put a --host b c"]
    );
    assert_eq!(words("KEY=\"$(cofferdam key create --name 'a b')\" cofferdam status 2>&1 >f").len(), 2);
    assert_eq!(
        words("cofferdam credits add w 25  # dollars, it's | cofferdam"),
        ["cofferdam credits add w 25"]
    );
    assert_eq!(words("KEY=$(cofferdam --json key list) && curl cofferdam"), ["cofferdam --json key list"]);
    assert!(mistake("cofferdam serve --listen 127.0.0.1:0 --check &").is_none());
    assert!(mistake("cofferdam usage --days N").is_none());
    assert!(mistake("cofferdam usage --days many").is_some());
    assert!(mistake("cofferdam serve --port 1").is_some());
    assert!(mistake("cofferdam serves").is_some());
}

#[test]
fn a_command_goes_on_until_it_is_complete() {
    let block = "$ cat > f <<E\na\nE\n$ curl -d '{\n  \"a\": 1\n}'\n{\"b\": 2}\n$ echo \\\n  a\na";
    let steps = steps(block).unwrap();
    let commands: Vec<&str> = steps.iter().map(|step| step.command.as_str()).collect();
    assert_eq!(commands, ["cat > f <<E\na\nE", "curl -d '{\n  \"a\": 1\n}'", "echo \\\n  a"]);
    assert_eq!(steps[1].expected, ["{\"b\": 2}"]);
}
