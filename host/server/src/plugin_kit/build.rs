//! `plugin build`: runs the commands of `build.toml` and puts component and manifest into the
//! project's folder `plugins`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_runtime::{ContractLine, Inspection, component_of, is_core_module};
use serde_json::json;

use super::process::{self, Ended, OutputTo};
use super::project::{
    FOLDER, Project, make_folder, make_private_folder, read_component, read_text, write_file, wrong,
};
use super::recipe::Recipe;
use super::wit;
use crate::command::CommandOutcome;
use crate::failure::Failure;
use crate::start::ask;

/// The world in `wit/` that a project builds.
const WORLD: &str = "plugin";
/// For how long one command may run.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// Files of the project's folder itself whose change runs `setup` again.
const SETUP_FILES_MAX: usize = 64;

/// Builds the project in this folder. With [`OutputTo::Text`] the output of the commands is shown only
/// with the error of one that fails.
pub(super) fn build(dir: &Path, output: OutputTo) -> Result<CommandOutcome, Failure> {
    let started = Instant::now();
    let project = Project::open(dir)?;
    let recipe = Recipe::read(dir)?;
    recipe.check_needs()?;
    add_contract(dir)?;
    set_up(&project, &recipe, output)?;
    let made = dir.join(&recipe.output);
    if let Some(folder) = made.parent() {
        make_folder(folder)?;
    }
    for command in recipe.command.each() {
        run(dir, command, output)?;
    }
    if !made.exists() {
        return Err(wrong(format!(
            "{}: `command` ended well and did not make `output`, {}; let both name the same file",
            project.place_of("build.toml", "output"),
            made.display()
        )));
    }
    let component = component(&project, read_component(&made)?)?;
    make_folder(&project.plugins())?;
    write_file(&project.component(), &component)?;
    write_file(&project.installed_manifest(), project.manifest_text.as_bytes())?;
    let inspection = Inspection::of(&component);
    let (file, seconds) = (project.component(), started.elapsed().as_secs_f64());
    Ok(CommandOutcome {
        text: format!(
            "{}, {} bytes, sha256:{}, built in {seconds:.1} s\n",
            file.display(),
            inspection.bytes,
            inspection.digest
        ),
        document: json!({
            "component": file, "bytes": inspection.bytes, "sha256": inspection.digest, "seconds": seconds,
        }),
    })
}

/// Writes the contract that this host serves into a project that has a world and no contract, as one
/// that was copied from a repository.
fn add_contract(dir: &Path) -> Result<(), Failure> {
    let contract = dir.join(ContractLine::FOLDER);
    if contract.exists() || !dir.join("wit/world.wit").exists() {
        return Ok(());
    }
    wit::write_to(&contract, ContractLine::newest())
}

/// The component of what was built, which may be a core module.
fn component(project: &Project, built: Vec<u8>) -> Result<Vec<u8>, Failure> {
    if !is_core_module(&built) {
        return Ok(built);
    }
    component_of(&built, &project.dir.join("wit"), WORLD)
        .map_err(|error| wrong(format!("{}: {error}", project.dir.join("wit/world.wit").display())))
}

/// Runs `setup`, unless it ran with the same files before.
fn set_up(project: &Project, recipe: &Recipe, output: OutputTo) -> Result<(), Failure> {
    if recipe.setup.each().next().is_none() {
        return Ok(());
    }
    let stamp = project.dir.join(FOLDER).join("setup");
    if read_text(&stamp).is_ok_and(|before| before == setup_files(project)) {
        return Ok(());
    }
    for command in recipe.setup.each() {
        run(&project.dir, command, output)?;
    }
    make_private_folder(&project.dir.join(FOLDER))?;
    // A setup may write files itself, such as a lock file: they are part of what it ran with.
    write_file(&stamp, setup_files(project).as_bytes())
}

/// Names and digests of the files beside `build.toml`, without those of sub-folders.
fn setup_files(project: &Project) -> String {
    let entries = fs::read_dir(&project.dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files.truncate(SETUP_FILES_MAX);
    let line = |path: &PathBuf| {
        let digest = read_component(path).map(|bytes| Inspection::digest_of(&bytes)).unwrap_or_default();
        format!("{} {digest}\n", path.file_name().unwrap_or_default().display())
    };
    files.iter().map(line).collect()
}

/// Runs one command in the project's folder. If its output goes to the screen, the command itself is
/// printed before.
fn run(dir: &Path, command: &[String], output: OutputTo) -> Result<(), Failure> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let line = command.join(" ");
    if output == OutputTo::Screen {
        ask(&format!("{line}\n"));
    }
    // A program within the project is named from the project's folder.
    let path = if program.contains('/') { dir.join(program) } else { PathBuf::from(program) };
    let path = if program.contains('/') { std::path::absolute(&path).unwrap_or(path) } else { path };
    let mut process = Command::new(path);
    process.args(arguments).current_dir(dir).stdin(Stdio::null());
    if program == "cargo" {
        process.env("CARGO_ENCODED_RUSTFLAGS", rust_flags(dir));
    }
    match process::run(&mut process, COMMAND_TIME_MAX, program, output) {
        Ok((Ended::Exited(status), _)) if status.success() => Ok(()),
        Ok((Ended::Exited(status), text)) => {
            let above = if output == OutputTo::Screen { "the output above" } else { "its output" };
            Err(wrong(format!("{text}`{line}` ended with {status}; {above} says why")))
        }
        Ok((Ended::OutOfTime, text)) => {
            let minutes = COMMAND_TIME_MAX.as_secs() / 60;
            Err(wrong(format!(
                "{text}`{line}` was ended after {minutes} min, the most that a command may take"
            )))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(wrong(format!(
            "{}: there is no program `{program}`: install it, or let `setup` make it",
            dir.join("build.toml").display()
        ))),
        Err(error) => Err(Failure::system(line)(error)),
    }
}

/// Flags of the Rust compiler. It may use instructions for 16 bytes at once, which every host has. Paths
/// of this machine are kept out of the component, so that its bytes do not depend on the folders: the
/// compiler uses the last mapping that fits.
fn rust_flags(dir: &Path) -> OsString {
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let project = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    // A dependency beside the project is named by the way to it: `/plugin/../kit`.
    let above = project.ancestors().filter(|path| path.parent().is_some()).enumerate();
    let mut maps: Vec<(PathBuf, String)> =
        above.map(|(levels, path)| (path.to_owned(), format!("/plugin{}", "/..".repeat(levels)))).collect();
    maps.reverse();
    if let Some(sources) = library_sources(dir) {
        maps.push((sources, "/rust".to_owned()));
    }
    if let Some(cargo) = cargo {
        let sources = fs::read_dir(cargo.join("registry/src")).into_iter().flatten().flatten();
        let sources: Vec<PathBuf> = sources.map(|entry| entry.path()).collect();
        maps.push((cargo, "/cargo".to_owned()));
        maps.extend(sources.into_iter().map(|source| (source, "/cargo/registry".to_owned())));
    }
    let mut flags = OsString::from("-Ctarget-feature=+simd128");
    for (from, to) in maps {
        flags.push("\u{1f}--remap-path-prefix=");
        flags.push(from);
        flags.push("=");
        flags.push(to);
    }
    flags
}

/// The sources of the standard library, which the compiler names where they are installed.
fn library_sources(dir: &Path) -> Option<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]).current_dir(dir).stdin(Stdio::null());
    let (Ended::Exited(status), output) = process::read(&mut rustc, COMMAND_TIME_MAX, "rustc").ok()? else {
        return None;
    };
    let sysroot = String::from_utf8(output).ok().filter(|_| status.success())?;
    Some(Path::new(sysroot.trim()).join("lib/rustlib/src/rust"))
}
