//! `callgrind`: what a whole answer costs in instructions and in misses of a model of the processor's caches. The
//! program runs under valgrind, so the counts do not depend on how busy the machine is: two runs of one build differ by
//! about one percent. The kernel's own code is not counted.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::process::Command;

use crate::client::{LoadRequest, within};
use crate::compare::OUTPUT;
use crate::load::OpenConnections;
use crate::process::in_path;
use crate::scene::{prompt, responses};
use crate::site::{Build, ModelScript, Program, Site};

#[derive(clap::Args)]
pub(crate) struct CallgrindOptions {
    /// The build of the program
    #[arg(long, value_name = "PATH", default_value = "target/dist/cofferdam")]
    program: PathBuf,
    /// How many connections send requests, several times for several counts
    #[arg(long, value_name = "N", default_values_t = [16, 64], value_parser = clap::value_parser!(u32).range(1..=512))]
    connections: Vec<u32>,
    /// How many requests are counted
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    requests: u32,
    /// A line at the beginning of cofferdam.toml, such as 'server.recorder = 0', several times for several lines
    #[arg(long = "setting", value_name = "LINE")]
    settings: Vec<String>,
    /// Where compiled plugins are kept for the next run, and callgrind's files of the last one
    #[arg(long, default_value = "target/callgrind")]
    folder: PathBuf,
}

/// The caches of the model: a core of a current server.
const CACHES: [&str; 3] = ["--I1=32768,8,64", "--D1=49152,12,64", "--LL=2097152,16,64"];
/// rustix asks the kernel with `prctl(PR_GET_AUXV)` for the address of the vDSO, which valgrind hides from programs. The
/// copy that is measured asks for something else and gets no answer.
const PR_GET_AUXV: &[u8; 4] = b"VXUA";
const PR_NOTHING: &[u8; 4] = b"WXUA";
/// How long it may take to compile all plugins under valgrind.
const COMPILING_MAX: Duration = Duration::from_secs(1_800);
const SCRIPT: &str = "whole";

pub(crate) async fn run(options: &CallgrindOptions) -> anyhow::Result<()> {
    for tool in ["valgrind", "vgdb"] {
        in_path(tool).with_context(|| format!("there is no {tool}; Debian: apt-get install valgrind"))?;
    }
    fs::create_dir_all(&options.folder)?;
    let folder = std::path::absolute(&options.folder)?;
    let site = Site::start().await?;
    let build = Build { name: "counted".to_owned(), path: without_vdso(&options.program, &folder)? };
    let config = site.config(&options.settings.join("\n"), &[ModelScript::new(SCRIPT)]);
    let counted = Counted::compiled(build, site.folder.path(), folder.join("cache"), &config).await?;
    println!("| connections | instructions | misses of I1 | of D1 | of LL: instructions, reads, writes |");
    println!("|--:|--:|--:|--:|--:|");
    for connections in &options.connections {
        let file = folder.join(format!("callgrind.{connections}"));
        let [instructions, _, _, i1, d1_reads, d1_writes, ll, ll_reads, ll_writes] =
            counted.count(*connections as usize, options.requests as usize, &file).await?;
        let d1 = d1_reads + d1_writes;
        println!("| {connections} | {instructions} | {i1} | {d1} | {ll} + {ll_reads} + {ll_writes} |");
    }
    Ok(())
}

/// A copy of the program that does not ask for the vDSO.
fn without_vdso(program: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let mut code = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let places: Vec<usize> = memchr::memmem::find_iter(&code, PR_GET_AUXV).collect();
    ensure!(
        !places.is_empty(),
        "the program does not ask for the vDSO as expected: it would crash under valgrind"
    );
    for place in places {
        if let Some(bytes) = code.get_mut(place..place + PR_NOTHING.len()) {
            bytes.copy_from_slice(PR_NOTHING);
        }
    }
    let copy = folder.join("program");
    fs::write(&copy, code)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(copy)
}

/// The program whose instructions are counted.
struct Counted {
    build: Build,
    /// Where its configuration and its data are.
    folder: PathBuf,
    cache: PathBuf,
    key: String,
}

impl Counted {
    /// Has the plugins compiled for the processor that valgrind shows, beside nothing that is counted.
    async fn compiled(build: Build, site: &Path, cache: PathBuf, config: &str) -> anyhow::Result<Self> {
        let folder = site.join(&build.name);
        let new = Program::start_new(&build, &folder, config, &[("COFFERDAM_CACHE", &cache)]).await?;
        let counted = Self { build, folder, cache, key: new.key.clone() };
        new.end().await?;
        let program = counted.start(&["valgrind".into(), "--tool=none".into()]).await?;
        program.until_compiled_within(COMPILING_MAX).await?;
        program.end().await?;
        Ok(counted)
    }

    async fn start(&self, tool: &[String]) -> anyhow::Result<Program> {
        let cache = [("COFFERDAM_CACHE", self.cache.as_path())];
        Program::start_under(tool, &self.build, &self.folder, &self.key, &cache).await
    }

    /// What callgrind counts for a request, in the order of its columns.
    async fn count(&self, connections: usize, requests: usize, file: &Path) -> anyhow::Result<[u64; 9]> {
        let tool = ["valgrind", "--tool=callgrind", "--cache-sim=yes", "--instr-atstart=no"];
        let out = format!("--callgrind-out-file={}", file.display());
        let tool: Vec<String> = tool.into_iter().chain(CACHES).map(str::to_owned).chain([out]).collect();
        if file.exists() {
            fs::remove_file(file)?;
        }
        let program = self.start(&tool).await?;
        let request = LoadRequest {
            expected: OUTPUT,
            ..LoadRequest::post("/v1/responses", &self.key, responses(SCRIPT, prompt()).to_string())
        };
        let open = || OpenConnections::open(program.address, connections, &request);
        open().await?.load_count(&request, 6 * connections).await?;
        tell(&program, &["instrumentation", "on"]).await?;
        open().await?.load_count(&request, 3 * connections).await?;
        let opened = open().await?;
        tell(&program, &["zero"]).await?;
        opened.load_count(&request, requests).await?;
        tell(&program, &["instrumentation", "off"]).await?;
        program.end().await?;
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let totals = text
            .lines()
            .find_map(|line| line.strip_prefix("totals: "))
            .context("callgrind counted nothing")?;
        let mut totals: Vec<u64> = totals.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        // Zeros at the end are left out.
        totals.resize(totals.len().max(9), 0);
        let counts: [u64; 9] =
            totals.try_into().ok().context("callgrind counted other things than expected")?;
        Ok(counts.map(|count| count / requests as u64))
    }
}

/// Tells callgrind something. `callgrind_control` itself ends well even if it reached nothing.
async fn tell(program: &Program, words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("vgdb");
    command.arg(format!("--pid={}", program.id()?)).args(words).kill_on_drop(true);
    let told = within(async { Ok(command.output().await?) }, "vgdb").await?;
    if !told.status.success() {
        bail!("callgrind was not told {words:?}: {}", String::from_utf8_lossy(&told.stderr));
    }
    Ok(())
}
